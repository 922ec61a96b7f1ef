"""What a teacher runs: ``python -m course.hand_out``."""
