"""Results for people: reads results, decides nothing."""
