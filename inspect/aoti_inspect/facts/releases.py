"""Which release first had a symbol version: glibc, libstdc++ (by GCC), PTX (by CUDA and its driver).

Sources: glibc's NEWS and the distributions' package lists; libstdc++'s manual, "ABI Policy and Guidelines";
the PTX manual, "Release Notes". A version that is not listed is simply not explained.
"""

from __future__ import annotations

#: glibc releases by what first shipped them, for the versions that people meet.
GLIBC_FIRST: dict[str, str] = {
    "2.17": "RHEL 7",
    "2.23": "Ubuntu 16.04",
    "2.24": "Debian 9",
    "2.26": "Amazon Linux 2",
    "2.27": "Ubuntu 18.04",
    "2.28": "RHEL 8, Debian 10",
    "2.31": "Ubuntu 20.04, Debian 11",
    "2.34": "RHEL 9, Amazon Linux 2023",
    "2.35": "Ubuntu 22.04",
    "2.36": "Debian 12",
    "2.38": "Ubuntu 23.10, Fedora 39",
    "2.39": "Ubuntu 24.04, RHEL 10",
    "2.40": "Ubuntu 24.10, Fedora 41",
    "2.41": "Debian 13, Ubuntu 25.04",
    "2.42": "Ubuntu 25.10, Fedora 43",
    "2.43": "Ubuntu 26.04",
}

#: GLIBC_ABI_* versions stand for what the dynamic linker can do, and carry no number of their own.
GLIBC_ABI: dict[str, str] = {"GLIBC_ABI_DT_RELR": "2.36"}

#: The GCC release whose libstdc++ first had a GLIBCXX_ version.
GLIBCXX_GCC: dict[str, str] = {
    "3.4": "3.4.0",
    "3.4.9": "4.2.0",
    "3.4.10": "4.3.0",
    "3.4.11": "4.4.0",
    "3.4.12": "4.4.1",
    "3.4.13": "4.4.2",
    "3.4.14": "4.5.0",
    "3.4.15": "4.6.0",
    "3.4.16": "4.6.1",
    "3.4.17": "4.7.0",
    "3.4.18": "4.8.0",
    "3.4.19": "4.8.3",
    "3.4.20": "4.9.0",
    "3.4.21": "5.1",
    "3.4.22": "6.1",
    "3.4.23": "7.1",
    "3.4.24": "7.2",
    "3.4.25": "8.1",
    "3.4.26": "9.1",
    "3.4.27": "9.2",
    "3.4.28": "9.3",
    "3.4.29": "11.1",
    "3.4.30": "12.1",
    "3.4.31": "13.1",
    "3.4.32": "13.2",
    "3.4.33": "14.1",
    "3.4.34": "15.1",
    "3.4.35": "16.1",
}

#: The GCC release whose libstdc++ first had a CXXABI_ version.
CXXABI_GCC: dict[str, str] = {
    "1.3": "3.4.0",
    "1.3.1": "4.0.0",
    "1.3.2": "4.3.0",
    "1.3.3": "4.4.0",
    "1.3.4": "4.5.0",
    "1.3.5": "4.6.0",
    "1.3.6": "4.7.0",
    "1.3.7": "4.8.0",
    "1.3.8": "4.9.0",
    "1.3.9": "5.1",
    "1.3.10": "6.1",
    "1.3.11": "7.1",
    "1.3.12": "9.1",
    "1.3.13": "11.1",
    "1.3.14": "13.1",
    "1.3.15": "14.1",
    "1.3.16": "15.1",
    "1.3.17": "16.1",
}

#: PTX ISA versions: the CUDA release that brought each, and the oldest driver branch that compiles it.
PTX_CUDA: dict[str, tuple[str, int]] = {
    "6.0": ("9.0", 384),
    "6.1": ("9.1", 387),
    "6.2": ("9.2", 396),
    "6.3": ("10.0", 410),
    "6.4": ("10.1", 418),
    "6.5": ("10.2", 440),
    "7.0": ("11.0", 450),
    "7.1": ("11.1", 455),
    "7.2": ("11.2", 460),
    "7.3": ("11.3", 465),
    "7.4": ("11.4", 470),
    "7.5": ("11.5", 495),
    "7.6": ("11.6", 510),
    "7.7": ("11.7", 515),
    "7.8": ("11.8", 520),
    "8.0": ("12.0", 525),
    "8.1": ("12.1", 530),
    "8.2": ("12.2", 535),
    "8.3": ("12.3", 545),
    "8.4": ("12.4", 550),
    "8.5": ("12.5", 555),
    "8.6": ("12.7", 565),
    "8.7": ("12.8", 570),
    "8.8": ("12.9", 575),
    "9.0": ("13.0", 580),
    "9.1": ("13.1", 590),
}
