"""What a user gets: the wheel, the source archive, the first start, the pins."""
