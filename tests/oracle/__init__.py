"""A LogMiner in miniature with a real redo history, and the campaign that runs the Oracle connector on it."""
