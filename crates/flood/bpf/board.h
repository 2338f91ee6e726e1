/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * The board: where messages for the applications of this host are put, once for all of them. They map it and read it; src/board.rs has
 * the same layout. Message number n, from 0, goes into the slot n modulo BOARD_SLOTS, over what was there: a reader that
 * falls behind loses the oldest, and knows how many. All are words of 64 bits:
 *
 *   0                            messages so far, those included that are being written
 *   BOARD_WORDS × (1 + slot)     stamp: 2 (n + 1) when message n is there, one more while it is being written
 *   … + 1                        bytes of the frame
 *   … + 2 …                      the frame, from its header on, as it was heard
 */
#ifndef NAWA_BOARD_H
#define NAWA_BOARD_H

/* A power of two. */
#define BOARD_SLOTS 1024
/* Of a slot: stamp, length, and the longest frame. */
#define BOARD_WORDS 294

struct board_slot {
	__u64 stamp;
	__u64 length;
	__u64 frame[BOARD_WORDS - 2];
};

#endif
