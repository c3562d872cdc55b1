"""The engine: who computes next, one step of it, and the clients that ask it, in a thread or a process."""
