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

#define clone 220
#define exit_group 94
// CLONE_VM | CLONE_VFORK | SIGCHLD; and with CLONE_PARENT, CLONE_PARENT_SETTID
#define flagsFirst 0x4111
#define flagsLeader 0x10c111

// func birth(o *order) int
//
// R19 is the order, R20 the next step and R21 the end of them; the kernel keeps
// all three. Children leave the stack alone.
TEXT ·birth(SB), NOSPLIT|NOFRAME, $0-16
	MOVD o+0(FP), R19
	MOVD $flagsFirst, R0
	MOVD ZR, R1
	MOVD ZR, R2
	MOVD ZR, R3
	MOVD ZR, R4
	MOVD $clone, R8
	SVC
	CBZ R0, born
	MOVD R0, ret+8(FP)
	RET

born:
	MOVD holder(R19), R20
	MOVD holderEnd(R19), R21
	CBZ R20, lead

take:
	CMP R21, R20
	BHS taken
	MOVD number(R20), R8
	MOVD argA(R20), R0
	MOVD argB(R20), R1
	MOVD argC(R20), R2
	MOVD argD(R20), R3
	MOVD ZR, R4
	SVC
	CMN $4095, R0
	BLO next
	MOVD mayFail(R20), R9
	CBZ R9, failed

next:
	ADD $size, R20
	B take

taken: // the holder's steps: a leader's end with execve
	MOVD $flagsLeader, R0
	MOVD ZR, R1
	ADD $begotten, R19, R2
	MOVD ZR, R3
	MOVD ZR, R4
	MOVD $clone, R8
	SVC
	CBZ R0, lead
	CMN $4095, R0
	BHS failed
	MOVD ZR, R0
	B end

lead:
	MOVD leader(R19), R20
	MOVD leaderEnd(R19), R21
	B take

failed:
	NEG R0, R0
	MOVD R0, errno(R19)
	MOVD $127, R0

end:
	MOVD $exit_group, R8
	SVC
	B end
