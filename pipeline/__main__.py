"""`python -m pipeline` is `thdpack`."""

from pipeline.cli.main import main

if __name__ == "__main__":
    main()
