"""ELF files, read as the dynamic linker reads them: `image.ElfImage`, `read.open_elf`."""
