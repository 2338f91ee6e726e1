/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What `attack.rs` and its program share.
 */
#ifndef NAWA_LAB_ATTACK_H
#define NAWA_LAB_ATTACK_H

#define ATTACK_FRAMES 4096
#define ATTACK_SEED 0x88b5

/* An Ethernet frame. */
struct attack_frame {
	__u32 length;
	__u8 bytes[1532];
};

struct attack_state {
	__u32 next;  /* of the list */
	__u32 count; /* frames in the list */
	__u64 sent;
};

/* A frame that asks for others. */
struct attack_seed {
	__u8 addresses[12];
	__u16 ethertype;
	__u16 count;
};

#endif
