"""`python -m pipeline` is `thdpack`."""

from thdpack import main

if __name__ == "__main__":
    main()
