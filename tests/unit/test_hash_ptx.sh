#!/bin/sh
# daemon/memory/hash.ptx is what hash.cu says.
exec sh "$SOURCE/daemon/memory/hash.sh" --check
