#!/bin/sh
set -eu
test "$(pwd)" = /app && test "$GREETING" = hello && test "$(id -u)" = 0
cp seed.txt answer.txt
