#!/bin/sh
set -eu
# A name that cannot be looked up, and an address that cannot be reached.
! getent hosts example.com
! timeout 5 bash -c ': < /dev/tcp/1.1.1.1/443'
cp seed.txt answer.txt
