"""`python -m llm_server`."""

from llm_server.cli import main

if __name__ == "__main__":
    main()
