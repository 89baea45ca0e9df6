"""Run the `thdpack` command as `python -m pipeline`."""

from thdpack import main

if __name__ == "__main__":
    main()
