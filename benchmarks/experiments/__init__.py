"""The paper's experiments, repeated on an accelerator."""
