//! Random operations: the books close after each one, and at the end everything drains.
