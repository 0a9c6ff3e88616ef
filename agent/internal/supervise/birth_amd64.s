#include "textflag.h"

// struct order
#define holder 0
#define holderEnd 8
#define leader 16
#define leaderEnd 24
#define errno 32
#define begotten 40

// struct step
#define number 0
#define argA 8
#define argB 16
#define argC 24
#define argD 32
#define mayFail 40
#define size 48

#define clone 56
#define exit_group 231
// CLONE_VM | CLONE_VFORK | SIGCHLD; and with CLONE_PARENT, CLONE_PARENT_SETTID
#define flagsFirst 0x4111
#define flagsLeader 0x10c111

// func birth(o *order) int
//
// BX is the order, R12 the next step and R13 the end of them; the kernel keeps
// all three. Children leave the stack alone.
TEXT ·birth(SB), NOSPLIT, $0-16
	MOVQ o+0(FP), BX
	MOVL $flagsFirst, DI
	XORL SI, SI
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
	MOVL $clone, AX
	SYSCALL
	TESTQ AX, AX
	JEQ born
	MOVQ AX, ret+8(FP)
	RET

born:
	MOVQ holder(BX), R12
	MOVQ holderEnd(BX), R13
	TESTQ R12, R12
	JEQ lead

take:
	CMPQ R12, R13
	JCC taken
	MOVQ number(R12), AX
	MOVQ argA(R12), DI
	MOVQ argB(R12), SI
	MOVQ argC(R12), DX
	MOVQ argD(R12), R10
	XORL R8, R8
	SYSCALL
	CMPQ AX, $-4095
	JCS next
	CMPQ mayFail(R12), $0
	JEQ failed

next:
	ADDQ $size, R12
	JMP take

taken: // the holder's steps: a leader's end with execve
	MOVL $flagsLeader, DI
	XORL SI, SI
	LEAQ begotten(BX), DX
	XORL R10, R10
	XORL R8, R8
	MOVL $clone, AX
	SYSCALL
	TESTQ AX, AX
	JEQ lead
	CMPQ AX, $-4095
	JCC failed
	XORL DI, DI
	JMP end

lead:
	MOVQ leader(BX), R12
	MOVQ leaderEnd(BX), R13
	JMP take

failed:
	NEGQ AX
	MOVQ AX, errno(BX)
	MOVL $127, DI

end:
	MOVL $exit_group, AX
	SYSCALL
	JMP end
