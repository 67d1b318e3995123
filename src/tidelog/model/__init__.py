"""What things are: frozen values that know nothing of files, threads or drivers."""
