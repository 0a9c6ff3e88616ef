"""Each sandbox is a virtual machine of QEMU, with a Linux kernel of its own."""
