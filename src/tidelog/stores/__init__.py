"""Where control state rests: offsets, connectors, signals. Empty until the offset API comes."""
