"""The one harness: how cases are run, timed and compared, what is recorded of them, and how figures are shown."""
