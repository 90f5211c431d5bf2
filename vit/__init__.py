"""Images and videos to embedding rows: loading, per-family preprocessing and vision encoders."""
