"""Settings of AWS's library in the environment and in its files, and errors about them."""
