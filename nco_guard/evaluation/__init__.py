"""For measuring: the paper's metrics, the methods it compares, other libraries, and sets of regular expressions."""
