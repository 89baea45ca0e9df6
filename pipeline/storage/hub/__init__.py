"""Datasets on the Hugging Face Hub: URLs, commits, errors, and uploads. The upload and all requests
use huggingface_hub, which thdpack's extra `hf` installs."""
