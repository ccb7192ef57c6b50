"""Power cuts by replay: parser, model, recorder."""
