# Read by interactive shells, and by login shells through .profile. Starts no process.

case $- in
  *i*) ;;
  *) return ;;
esac

PS1='\w \$ '
