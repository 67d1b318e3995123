"""IBM i (iSeries): its offsets."""
