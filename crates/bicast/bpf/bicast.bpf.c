// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Selective bicast for SCTP on this host, or on those that it forwards for (paper 004, 3.2.1): a program on the egress hook of each interface in use
 * sends a copy of what bicast.h names from another of them, between another pair of the association's addresses; one
 * on the ingress hook learns what those are (ends.h).
 *
 * The copy is made before anything is changed, by bpf_clone_redirect, and changed in the egress hook of the interface
 * that it leaves by, so nothing has to be put back in the original. Two bits of the mark tell the hook what it sees;
 * both are taken off before the packet leaves, and the user's bits stay.
 */
#include "ends.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define MARK_MASK 0x30000000
#define MARK_COPY 0x10000000 /* to be given its addresses; cb[0] says which */
#define MARK_DONE 0x20000000 /* a copy on its way out */

/* How good an address of the peer is for a copy of `w` that leaves by `interface`: less is better, 0 is not at all. One
 * to which the stack's HEARTBEATs leave there comes before one to which they leave elsewhere, since that may have no
 * route (bpf_fib_lookup tells only where packets are forwarded); another than the packet's own before that one; a
 * shorter way before a longer one. */
INLINE __u64 rank(const struct walk *w, const struct remote *r, __u32 interface)
{
	if (!r->confirmed || r->unanswered > UNANSWERED || is_ipv4(&r->address) == w->is_ipv6)
		return 0;
	return 1 + r->rtt_us + (same(&r->address, &w->destination) ? 1ull << 32 : 0) +
	       (r->interface != interface ? 1ull << 33 : 0);
}

/* The interface that copies from this end's address leave by, if that is another than the one that `w` leaves by; else 0. */
INLINE __u32 other_interface(const struct __sk_buff *skb, const struct walk *w, const struct local *local)
{
	if (local->interface == skb->ifindex || is_ipv4(&local->address) == w->is_ipv6)
		return 0;
	return local->interface;
}

/* Whether there is any. */
INLINE int has_other(const struct __sk_buff *skb, const struct walk *w, const struct association *a)
{
	__u32 any = 0;

	for (int i = 0; i < ADDRESSES; i++)
		any |= other_interface(skb, w, &a->locals[i]);
	return any != 0;
}

/* One pair of addresses: `w->best` becomes it if it is better. */
INLINE void consider(struct __sk_buff *skb, struct walk *w, const struct association *a, __u32 local, __u32 remote)
{
	__u32 interface = other_interface(skb, w, &a->locals[local]), mtu = 0;
	__u64 is = interface ? rank(w, &a->remotes[remote], interface) : 0;

	if (!is || (w->best.rank && is >= w->best.rank) || bpf_check_mtu(skb, interface, &mtu, 0, 0))
		return;
	w->best = (struct choice){ is, local, remote, interface };
}

/* Whether a copy may leave from the address chosen: this host's may have gone, or moved to another interface, since it was
 * learnt. Then it is learnt anew. */
INLINE int still_there(struct association *a, const struct choice *best)
{
	struct local *local = &a->locals[best->local % ADDRESSES];
	__u32 *interface;

	if (local->forwarded)
		return 1;
	interface = bpf_map_lookup_elem(&own, &local->address);
	if (interface && *interface == best->interface)
		return 1;
	*local = (struct local){};
	return 0;
}

INLINE void count_copy(const struct walk *w, struct association *a, __u32 reasons)
{
	add(&a->extra_bytes, w->ip_length);
	count(COUNT_COPIES, 1);
	count(COUNT_EXTRA_BYTES, w->ip_length);
	for (int i = 0; i < 6; i++)
		if (reasons & (1 << i))
			add(&a->copies[i], 1);
}

/* Sends the packet once more by its own path. */
INLINE void repeat(struct __sk_buff *skb, const struct walk *w, struct association *a, __u32 reasons)
{
	__u32 mark = skb->mark;

	skb->mark = (mark & ~MARK_MASK) | MARK_DONE;
	if (!bpf_clone_redirect(skb, skb->ifindex, 0))
		count_copy(w, a, reasons);
	skb->mark = mark;
}

/* Sends a copy of the packet, which itself stays as it is; whether it has left. */
INLINE int copy(struct __sk_buff *skb, struct walk *w, struct association *a, __u32 reasons)
{
	__u32 mark = skb->mark;
	long failed;

	if (has_other(skb, w, a))
		for (__u32 i = 0; i < ADDRESSES * ADDRESSES; i++)
			consider(skb, w, a, i / ADDRESSES, i % ADDRESSES);
	if (!w->best.rank || !still_there(a, &w->best)) {
		add(&a->skipped[SKIPPED_NO_PATH], 1);
		return 0;
	}
	skb->mark = (mark & ~MARK_MASK) | MARK_COPY;
	skb->cb[0] = w->best.local | w->best.remote << 8;
	failed = bpf_clone_redirect(skb, w->best.interface, 0);
	skb->mark = mark;
	if (failed) {
		add(&a->skipped[SKIPPED_UNSENT], 1);
		return 0;
	}
	count_copy(w, a, reasons);
	return 1;
}

INLINE int readdress_ipv4(struct __sk_buff *skb, const struct walk *w, const struct address *from,
			  const struct address *to)
{
	__u32 new[2] = { from->words[3], to->words[3] };

	return bpf_l3_csum_replace(skb, ETHERNET + 10, w->source.words[3], new[0], 4) ||
	       bpf_l3_csum_replace(skb, ETHERNET + 10, w->destination.words[3], new[1], 4) ||
	       bpf_skb_store_bytes(skb, ETHERNET + 12, new, sizeof(new), 0);
}

INLINE int readdress_udp(struct __sk_buff *skb, const struct walk *w, const struct address *from,
			 const struct address *to)
{
	struct address old[2] = { w->source, w->destination }, new[2] = { *from, *to };
	__s64 difference = bpf_csum_diff((__u32 *)old, sizeof(old), (__u32 *)new, sizeof(new), 0);

	return bpf_l4_csum_replace(skb, w->udp_at + 6, 0, difference, BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0);
}

/* Gives a copy its addresses and its next hop, on the interface that it leaves by. SCTP's checksum covers neither. */
INLINE int send_copy(struct __sk_buff *skb, const struct settings *now)
{
	__u32 local = skb->cb[0] & 0xff, remote = skb->cb[0] >> 8 & 0xff;
	struct walk *w = new_walk(SCRATCH_COPY);
	struct address from, to;
	struct association *a;
	struct key key;
	int failed;

	if (!w || walk_headers(skb, w, now->udp_port) != WALKED_SCTP || local >= ADDRESSES || remote >= ADDRESSES)
		return TC_ACT_SHOT;
	key = (struct key){ w->tag, w->source_port, w->destination_port };
	a = bpf_map_lookup_elem(&associations, &key);
	if (!a)
		return TC_ACT_SHOT;
	from = a->locals[local].address;
	to = a->remotes[remote].address;
	if (is_none(&from) || is_none(&to))
		return TC_ACT_SHOT;
	if (w->is_ipv6)
		failed = bpf_skb_store_bytes(skb, ETHERNET + 8, &from, 16, 0) ||
			 bpf_skb_store_bytes(skb, ETHERNET + 24, &to, 16, 0);
	else
		failed = readdress_ipv4(skb, w, &from, &to);
	if (failed || (w->udp_at && readdress_udp(skb, w, &from, &to)))
		return TC_ACT_SHOT;
	skb->mark = (skb->mark & ~MARK_MASK) | MARK_DONE;
	return bpf_redirect_neigh(skb->ifindex, 0, 0, 0);
}

/* What is sent tells who the ends are. */
INLINE void learn_from_sent(struct __sk_buff *skb, const struct walk *w, const struct key *key, struct association *a)
{
	__u32 *local_tag;

	if (w->places[COOKIE].length) {
		local_tag = bpf_map_lookup_elem(&handshakes, key);
		if (local_tag) {
			join(key, a, *local_tag);
			cookie_sent(skb, w, a);
			bpf_map_delete_elem(&handshakes, key);
		}
	}
	if (w->places[HEARTBEAT].length)
		probe_sent(skb, w, key, a);
	if (w->places[ASCONF].length)
		changed(skb, w, a, 1);
}

/* INIT ACK has one end's tag in its header and the other's inside: `sent` says which. */
INLINE void shake_hands(struct __sk_buff *skb, const struct walk *w, const struct key *key, int sent)
{
	__u32 inside, outside = key->tag;
	struct key out = *key;

	if (bpf_skb_load_bytes(skb, w->places[INIT_ACK].at + 4, &inside, sizeof(inside)) || !inside || !outside)
		return;
	if (!sent)
		out.tag = inside;
	bpf_map_update_elem(&handshakes, &out, sent ? &inside : &outside, BPF_ANY);
}

/* Whether only an end of an association sends such a packet: what answers strangers makes no state. */
INLINE int of_an_association(const struct walk *w)
{
	return (w->fields.found & FOUND_DATA) || w->places[COOKIE].length || w->places[HEARTBEAT].length ||
	       w->places[SACK].length;
}

/* The reasons to copy a packet in adaptive mode; nothing has been sent for `idle_ns` before it. */
INLINE __u32 adapt(const struct walk *w, struct association *a, __u32 reasons, __u64 idle_ns)
{
	if (w->fields.found & FOUND_DATA)
		return bicast_spare_sent(&a->spare, reasons, w->fields.tsn_low, idle_ns / 1000, bpf_ktime_get_ns() / 1000);
	return bicast_wanted(BICAST_ADAPTIVE, reasons);
}

INLINE void judge(struct __sk_buff *skb, struct walk *w, const struct settings *now, const struct key *key)
{
	__u64 now_ns, idle_ns;
	struct association *a;
	__u32 reasons;

	a = of_an_association(w) ? associate(key) : bpf_map_lookup_elem(&associations, key);
	if (!a)
		return;
	now_ns = bpf_ktime_get_coarse_ns();
	idle_ns = now_ns - a->seen_ns;
	a->seen_ns = now_ns;
	learn_from_sent(skb, w, key, a);
	reasons = bicast_sctp_classify(&a->tsn, &w->fields);
	reasons = now->mode == BICAST_ADAPTIVE ? adapt(w, a, reasons, idle_ns) : bicast_wanted(now->mode, reasons);
	if (reasons && now->mode == BICAST_ADAPTIVE &&
	    !bicast_affordable(a->sent_bytes, a->extra_bytes, w->ip_length, now->budget_percent, reasons)) {
		add(&a->skipped[SKIPPED_BUDGET], 1);
		if (reasons == BICAST_REST)
			bicast_spare_spent(&a->spare, bpf_ktime_get_ns() / 1000);
		reasons = 0;
	}
	add(&a->sent_packets, 1);
	add(&a->sent_bytes, w->ip_length);
	count(COUNT_SENT_PACKETS, 1);
	count(COUNT_SENT_BYTES, w->ip_length);
	if (now->mode != BICAST_OFF && makes_known(w, a))
		repeat(skb, w, a, BICAST_BEGIN);
	if (reasons && copy(skb, w, a, reasons) && (w->fields.found & FOUND_DATA)) {
		bicast_spare_copied(&a->spare, reasons, w->fields.tsn_low, bpf_ktime_get_ns() / 1000);
		if (now->mode == BICAST_ADAPTIVE && bicast_spare_thrice(&a->spare, reasons) &&
		    bicast_affordable(a->sent_bytes, a->extra_bytes, w->ip_length, now->budget_percent, reasons))
			repeat(skb, w, a, reasons);
	}
	if (w->fields.found & FOUND_END)
		forget(key, a);
}

/* A packet of this host's stack. */
INLINE void consider_sent(struct __sk_buff *skb, const struct settings *now)
{
	struct walk *w = new_walk(SCRATCH_EGRESS);
	enum walked walked;
	struct key key;

	if (!w)
		return;
	walked = walk(skb, w, now->udp_port);
	if (walked == WALKED_MALFORMED)
		count(COUNT_MALFORMED, 1);
	if (walked == WALKED_FRAGMENT)
		count(COUNT_FRAGMENT, 1);
	if (walked != WALKED_SCTP)
		return;
	key = (struct key){ w->tag, w->source_port, w->destination_port };
	if (w->places[INIT].length)
		introduce(skb, &w->places[INIT], &key);
	if (w->places[INIT_ACK].length) {
		introduce(skb, &w->places[INIT_ACK], &key);
		shake_hands(skb, w, &key, 1);
	} else {
		judge(skb, w, now, &key);
	}
}

SEC("tcx/egress")
int bicast_egress(struct __sk_buff *skb)
{
	struct settings *now = bpf_map_lookup_elem(&settings, &(__u32){ 0 });
	__u32 mark = skb->mark & MARK_MASK;

	if (!now)
		return TC_ACT_UNSPEC;
	if (mark == MARK_COPY)
		return send_copy(skb, now);
	if (mark == MARK_DONE)
		skb->mark &= ~MARK_MASK;
	else
		consider_sent(skb, now);
	return TC_ACT_UNSPEC;
}

/* What the receiver has, and its report of what it has twice. */
INLINE void take_report(struct __sk_buff *skb, const struct walk *w, struct association *a)
{
	__u32 highest, first = 0, gaps, count, at = w->places[SACK].at, behind = at + 16;
	__u16 counts[2], end;

	if (bpf_skb_load_bytes(skb, at + 4, &highest, sizeof(highest)) ||
	    bpf_skb_load_bytes(skb, at + 12, counts, sizeof(counts)))
		return;
	highest = ntohl(highest);
	gaps = ntohs(counts[0]);
	count = ntohs(counts[1]);
	behind += 4 * gaps;
	if (gaps) {
		if (bpf_skb_load_bytes(skb, behind - 2, &end, sizeof(end)))
			return;
		highest += ntohs(end);
	}
	if (count && bpf_skb_load_bytes(skb, behind, &first, sizeof(first)))
		return;
	if (count)
		add(&a->duplicates, count);
	bicast_spare_acknowledged(&a->spare, highest, ntohl(first), count, bpf_ktime_get_ns() / 1000);
}

/* What has arrived for the association of `out`. */
INLINE void learn_from_received(struct __sk_buff *skb, const struct settings *now, const struct walk *w,
				const struct key *out, struct association *a)
{
	arrived_at(skb, now, a, &w->destination);
	if (w->places[ASCONF].length)
		changed(skb, w, a, 0);
	if (w->places[SACK].length)
		take_report(skb, w, a);
	if (w->fields.found & FOUND_END)
		forget(out, a);
}

SEC("tcx/ingress")
int bicast_ingress(struct __sk_buff *skb)
{
	struct settings *now = bpf_map_lookup_elem(&settings, &(__u32){ 0 });
	struct walk *w = new_walk(SCRATCH_INGRESS);
	struct key key, out;
	struct association *a;
	__u32 *tag;

	if (!now || !w || walk(skb, w, now->udp_port) != WALKED_SCTP)
		return TC_ACT_UNSPEC;
	key = (struct key){ w->tag, w->destination_port, w->source_port };
	if (w->places[INIT_ACK].length)
		shake_hands(skb, w, &key, 0);
	if (w->places[HEARTBEAT_ACK].length)
		probe_answered(skb, w, &key);
	out = key;
	if (!w->abort_reflected) {
		tag = bpf_map_lookup_elem(&inbound, &key);
		if (!tag)
			return TC_ACT_UNSPEC;
		out.tag = *tag;
	}
	a = bpf_map_lookup_elem(&associations, &out);
	if (a)
		learn_from_received(skb, now, w, &out, a);
	return TC_ACT_UNSPEC;
}
