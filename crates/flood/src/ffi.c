/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 * flood.h, compiled natively, under names that Rust can call. */
#include <stdint.h>
#include <string.h>

typedef uint8_t __u8;
typedef uint16_t __u16;
typedef uint32_t __u32;
typedef unsigned long long __u64;

#include "flood.h"

__u32 nawa_flood_parse(struct flood_header *h, const struct flood_config *c, const __u8 *at, const __u8 *end, __u32 pad)
{
	return flood_parse(h, c, at, end, (__u32)(end - at), pad);
}

__u64 nawa_flood_tag(const struct flood_config *c, const struct flood_header *h, const __u8 *at, const __u8 *end)
{
	__u64 words[FLOOD_FRAME_WORDS];
	struct flood_tag tag;

	if (at + FLOOD_HEADER_1 + h->len > end || h->len > FLOOD_DATA_MAX)
		return 0;
	memcpy(words, at, FLOOD_HEADER_1 + h->len);
	flood_tag_begin(&tag, c, h, words);
	flood_tag_words(&tag, 0, tag.count);
	return flood_tag_end(&tag);
}

__u32 nawa_flood_check(const struct flood_source *s, const struct flood_config *c, const struct flood_header *h, __u32 now)
{
	return flood_check(s, c, h, now);
}

void nawa_flood_source_init(struct flood_source *s, const struct flood_config *c, const struct flood_header *h, __u32 now)
{
	flood_source_init(s, c, h, now);
}

__u32 nawa_flood_take(struct flood_source *s, const struct flood_config *c, const struct flood_header *h, __u32 now)
{
	struct flood_claim claim = { .source = s, .config = c, .header = h, .now = now };

	/* Nobody is in the way here. */
	return flood_taken(&claim, flood_try(&claim));
}

__u32 nawa_flood_source_size(void)
{
	return sizeof(struct flood_source);
}

__u32 nawa_flood_config_size(void)
{
	return sizeof(struct flood_config);
}

__u32 nawa_flood_header_size(void)
{
	return sizeof(struct flood_header);
}
