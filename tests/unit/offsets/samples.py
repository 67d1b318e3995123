"""One right document of each kind, as it is written."""

from __future__ import annotations

from typing import Any

from tidelog.connectors.mongodb import token

UUID = "24bc7850-2c16-11e6-a073-0242ac110002"
TOKEN = token.encode({"_data": "82635021A0000000012B0229296E04"})
VGTID = f'[{{"keyspace":"shop","shard":"-80","gtid":"MySQL56/{UUID}:1-1513","table_p_ks":[]}}]'
TRANSACTION = {"transaction_id": "571", "transaction_data_collection_order_public.orders": 3}
QUEUE = (
    '[{"incremental_snapshot_collections_id":"public.a",'
    '"incremental_snapshot_collections_additional_condition":"(x=1)",'
    '"incremental_snapshot_collections_surrogate_key":null,'
    '"incremental_snapshot_collections_correlation_id":"sig-1"}]'
)
INCREMENTAL = {
    "incremental_snapshot_primary_key": "aced000570",
    "incremental_snapshot_maximum_key": "aced000570",
    "incremental_snapshot_collections": QUEUE,
    "incremental_snapshot_correlation_id": "sig-1",
}

DOCUMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "postgres": (
        "postgres",
        {
            "ts_usec": 1600733377000000,
            "txId": 560,
            "lsn": 23876608,
            "xmin": 555,
            "lsn_proc": 23876592,
            "lsn_commit": 23876592,
            "messageType": "INSERT",
            "lsn_events_processed": 1,
            **TRANSACTION,
            **INCREMENTAL,
        },
    ),
    "postgres snapshot": (
        "postgres",
        {"lsn": 5, "snapshot": "INITIAL", "last_snapshot_record": False, "snapshot_completed": False},
    ),
    "mysql": (
        "mysql",
        {
            "server_id": 223344,
            "gtids": f"{UUID}:1-191",
            "file": "mysql-bin.000003",
            "pos": 154,
            "event": 1,
            "row": 2,
            "ts_sec": 1600733377,
            **TRANSACTION,
            **INCREMENTAL,
        },
    ),
    "mysql snapshot": ("mysql", {"file": "mysql-bin.000003", "pos": 154, "snapshot": "INITIAL"}),
    "mariadb": ("mariadb", {"gtids": "0-112233-42", "file": "mariadb-bin.000002", "pos": 342, "ts_sec": 1600733377}),
    "mongodb": ("mongodb", {"sec": 1666193824, "ord": 1, "resume_token": TOKEN, "lsid": "l", "txnNumber": 4}),
    "mongodb snapshot": ("mongodb", {"sec": -1, "ord": -1, "initsync": True}),
    "oracle buffered": (
        "oracle",
        {
            "scn": "745688898023",
            "commit_scn": "745688898024:1:0a00140012345678-0b00150012345678,745688898020:2:",
            "snapshot_scn": "745688000000",
            "txId": "0a00140012345678",
            "txSeq": 25,
            "window_advance_enabled": True,
            **TRANSACTION,
            **INCREMENTAL,
        },
    ),
    "oracle xstream": ("oracle", {"lcr_position": "0000000000060001", "commit_scn": None, "snapshot_scn": "123"}),
    "oracle olr": (
        "oracle",
        {"scn": "745688898023", "scn_idx": 7, "commit_scn": None, "txId": "0x0001.002.00000003"},
    ),
    "oracle snapshot": (
        "oracle",
        {
            "scn": None,
            "commit_scn": None,
            "snapshot_scn": "745688898023",
            "snapshot_pending_tx": "0a00140012345678:745688898000,0b00150012345678:745688898010",
            "snapshot": "INITIAL",
            "snapshot_completed": False,
        },
    ),
    "iseries": (
        "iseries",
        {
            "offset.event_sequence": "82",
            "offset.time": "123456",
            "offset.receiver": "RECV008",
            "offset.receiver_library": "RCV_LIB",
            "offset.processed": "true",
            "snapshot_completed": "false",
        },
    ),
    "iseries beginning": ("iseries", {"offset.event_sequence": "null", "offset.time": "", "offset.receiver": ""}),
    "sqlserver": (
        "sqlserver",
        {
            "commit_lsn": "00000025:00000d98:00a2",
            "change_lsn": "00000025:00000d98:0003",
            "event_serial_no": 1,
            **TRANSACTION,
            **INCREMENTAL,
        },
    ),
    "sqlserver snapshot": (
        "sqlserver",
        {
            "snapshot": "INITIAL",
            "snapshot_completed": False,
            "commit_lsn": "00000025:00000d98:00a2",
            "change_lsn": None,
            "event_serial_no": 0,
        },
    ),
    "db2": ("db2", {"commit_lsn": "00000000:00000000:0000000000052c25", "change_lsn": None, "event_serial_no": 1}),
    "vitess": (
        "vitess",
        {
            "vgtid": VGTID,
            "transaction_id": VGTID,
            "transaction_epoch": '{"-80":2,"80-":3}',
            "connector_generation": 0,
        },
    ),
    "cassandra": (
        "cassandra",
        {"ks.table.snapshot": ":-1", "ks.table.commitlog": "CommitLog-6-12345.log:100", "t": "CommitLog-6-1.log:0"},
    ),
    "spanner": (
        "spanner",
        {
            "offset": "2023-01-01T00:00:00.000000000Z",
            "startTime": "2023-01-01T00:00:00Z",
            "queryStartedAt": "2023-01-01T00:00:01Z",
        },
    ),
    "spanner beginning": ("spanner", {}),
}
