"""Facts about machines and GPUs: architectures, data sheets, caches, libraries; nothing here is measured."""
