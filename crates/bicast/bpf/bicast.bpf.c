// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Selective bicast for SCTP on this host, or on those that it forwards for (paper 004, 3.2.1): a program on the egress hook of each interface in use
 * sends a copy of what bicast.h names from another of them, between another pair of the association's addresses; one
 * on the ingress hook learns what those are (ends.h).
 *
 * The copy is made before anything is changed, by bpf_clone_redirect, and changed in the egress hook of the interface
 * that it leaves by, so nothing has to be put back in the original. That hook runs inside bpf_clone_redirect, and is told by
 * a map of this processor what it sees. On its way from there through the neighbour table to the hook again the copy has a
 * traffic class index (tc_index) that is taken off there. The mark is the user's: rules and routes see it in the copy as in the packet.
 */
#include "ends.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* `tc_index` of a copy that has its addresses; the value is arbitrary. A packet of another program that has it is not copied. */
#define DONE 0x6e77

/* How good an address of the peer is for a copy of `w`: less is better, 0 is not at all. Another than the packet's own comes
 * before that one, one whose copies are in time before one where the last was not, a shorter way before a longer one. */
INLINE __u64 rank(const struct walk *w, const struct association *a, __u32 remote)
{
	const struct remote *r = &a->remotes[remote];

	if (!r->confirmed || r->unanswered > UNANSWERED || is_ipv4(&r->address) == w->is_ipv6 ||
	    !r->udp.to != !w->udp_at)
		return 0;
	return 1 + r->rtt_us + (same(&r->address, &w->destination) ? 1ull << 32 : 0) +
	       (a->rate.late == remote + 1 ? 1ull << 33 : 0);
}

/* Above 0 if a packet, or one of a train that is yet to be cut, is too long for the other interface; below if that is gone. */
INLINE int too_long(struct __sk_buff *skb, __u32 interface)
{
	__u32 mtu = 0;

	return bpf_check_mtu(skb, interface, &mtu, 0, BPF_MTU_CHK_SEGS);
}

/* One pair of addresses, which counts if the stack has used it after `since`, and by an interface that the programs are on, for it is
 * there that a copy gets its addresses: `w->best` becomes it if it is better. */
INLINE void consider(struct walk *w, const struct association *a, __u32 local, __u32 remote, __u32 own, __u32 train,
		     __u64 since)
{
	const struct remote *r = &a->remotes[remote];
	struct way way = a->locals[local].ways[remote];
	__u64 is;

	if (!way.interface || way.interface == own || way.interface == w->barred || way.seen_ns <= since)
		return;
	is = rank(w, a, remote);
	if (!is || (w->best.rank && is >= w->best.rank) || !bpf_map_lookup_elem(&hooked, &way.interface))
		return;
	if (r->mtu && (train || w->ip_length > r->mtu))
		w->best.too_long = 1;
	else
		w->best = (struct choice){ is, local, remote, way.interface, w->best.too_long };
}

/* `w->best` becomes the best pair of addresses for a packet, or a train of them, that leaves by the interface `own`. */
GLOBAL int find_best(struct walk *w, const struct association *a, __u32 own, __u32 train, __u64 since)
{
	if (!w || !a)
		return 0;
	w->best.rank = 0;
	for (__u32 i = 0; i < ADDRESSES * ADDRESSES; i++)
		consider(w, a, i / ADDRESSES, i % ADDRESSES, own, train, since);
	return 1;
}

/* Whether a copy may leave as was chosen. If not, what it cannot leave by is not chosen again: the interface for this packet, or the
 * address, which may have gone from this host since it was learnt, and is then learnt anew. */
INLINE int may_leave(struct __sk_buff *skb, struct walk *w, struct association *a)
{
	struct local *local = &a->locals[w->best.local % ADDRESSES];
	int wrong = too_long(skb, w->best.interface);

	if (wrong) {
		w->barred = w->best.interface;
		w->best.too_long |= wrong > 0;
		return 0;
	}
	if (local->forwarded || bpf_map_lookup_elem(&own, &local->address))
		return 1;
	*local = (struct local){};
	return 0;
}

/* Chooses between which addresses, and by which interface, a copy goes; whether there are any. What cannot be used has one substitute. */
INLINE int choose(struct __sk_buff *skb, struct walk *w, struct association *a)
{
	__u32 own = skb->ifindex, train = skb->gso_segs > 1;
	__u64 now = bpf_ktime_get_coarse_ns(), since = now > WAY_NS ? now - WAY_NS : 0;
	__u64 *changed_ns = bpf_map_lookup_elem(&rules_changed, &(__u32){ 0 });

	if (changed_ns && *changed_ns > since)
		since = *changed_ns;
	for (int tries = 0; tries < 2; tries++) {
		find_best(w, a, own, train, since);
		if (!w->best.rank)
			break;
		if (may_leave(skb, w, a))
			return 1;
	}
	add(&a->skipped[w->best.too_long ? SKIPPED_TOO_LONG : SKIPPED_NO_PATH], 1);
	return 0;
}

INLINE void count_copy(struct association *a, __u32 reasons, __u32 length)
{
	add(&a->extra_bytes, length);
	count(COUNT_COPIES, 1);
	count(COUNT_EXTRA_BYTES, length);
	for (int i = 0; i < 6; i++)
		if (reasons & (1 << i))
			add(&a->copies[i], 1);
}

/* Sends the packet once more by its own path. */
INLINE void repeat(struct __sk_buff *skb, struct association *a, __u32 reasons, __u32 length)
{
	__u32 before = skb->tc_index;

	skb->tc_index = DONE;
	if (!bpf_clone_redirect(skb, skb->ifindex, 0))
		count_copy(a, reasons, length);
	skb->tc_index = before;
}

/* Sends a copy of the packet, which itself stays as it is, the way that was chosen. */
INLINE void copy(struct __sk_buff *skb, const struct walk *w, struct association *a, __u32 reasons, __u32 length)
{
	struct making *making = bpf_map_lookup_elem(&makings, &(__u32){ 0 });
	const struct remote *r = &a->remotes[w->best.remote % ADDRESSES];

	if (!making)
		return;
	making->interface = w->best.interface;
	making->from = a->locals[w->best.local % ADDRESSES].address;
	making->to = r->address;
	making->udp = r->udp;
	/* Where the hook there has not run, which another's program before it or `tc qdisc delete` brings about, what left is no copy. */
	if (bpf_clone_redirect(skb, w->best.interface, 0) || making->interface)
		add(&a->skipped[SKIPPED_UNSENT], 1);
	else
		count_copy(a, reasons, length);
	making->interface = 0;
}

INLINE int readdress_ipv4(struct __sk_buff *skb, const struct walk *w, const struct address *from,
			  const struct address *to)
{
	__u32 new[2] = { from->words[3], to->words[3] };

	return bpf_l3_csum_replace(skb, ETHERNET + 10, w->source.words[3], new[0], 4) ||
	       bpf_l3_csum_replace(skb, ETHERNET + 10, w->destination.words[3], new[1], 4) ||
	       bpf_skb_store_bytes(skb, ETHERNET + 12, new, sizeof(new), 0);
}

/* Where the hardware sums up, the checksum is that of the pseudo header yet, in which are the addresses and not the ports. */
INLINE int readdress_udp(struct __sk_buff *skb, const struct walk *w, const struct making *to)
{
	__u32 pair = 2 * sizeof(struct address);
	__s64 addresses = bpf_csum_diff((__u32 *)&w->source, pair, (__u32 *)&to->from, pair, 0);
	__s64 ports = bpf_csum_diff((__u32 *)&w->udp, sizeof(w->udp), (__u32 *)&to->udp, sizeof(to->udp), 0);

	return bpf_l4_csum_replace(skb, w->udp_at + 6, 0, addresses, BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0) ||
	       bpf_l4_csum_replace(skb, w->udp_at + 6, 0, ports, BPF_F_MARK_MANGLED_0) ||
	       bpf_skb_store_bytes(skb, w->udp_at, &to->udp, sizeof(to->udp), 0);
}

INLINE int readdress(struct __sk_buff *skb, const struct walk *w, const struct making *to)
{
	int failed;

	if (w->is_ipv6)
		failed = bpf_skb_store_bytes(skb, ETHERNET + 8, &to->from, 16, 0) ||
			 bpf_skb_store_bytes(skb, ETHERNET + 24, &to->to, 16, 0);
	else
		failed = readdress_ipv4(skb, w, &to->from, &to->to);
	return failed || (w->udp_at && readdress_udp(skb, w, to));
}

/* Whether it still has the addresses that `w` says, where another's program on this hook may have changed it. */
INLINE int is_as_walked(struct __sk_buff *skb, const struct walk *w)
{
	struct address pair[2];

	if (skb->vlan_present || skb->protocol != ntohs(w->is_ipv6 ? ETH_P_IPV6 : ETH_P_IP))
		return 0;
	if (w->is_ipv6)
		return !bpf_skb_load_bytes(skb, ETHERNET + 8, pair, sizeof(pair)) && same(&pair[0], &w->source) &&
		       same(&pair[1], &w->destination);
	return !bpf_skb_load_bytes(skb, ETHERNET + 12, pair, 8) && pair[0].words[0] == w->source.words[3] &&
	       pair[0].words[1] == w->destination.words[3];
}

/* Gives a copy its addresses and its next hop, on the interface that it leaves by. SCTP's checksum covers neither. Its original's hook
 * waits on this processor, with what is known of it. */
INLINE int send_copy(struct __sk_buff *skb, struct making *making)
{
	struct walk *w = bpf_map_lookup_elem(&scratch, &(__u32){ SCRATCH_EGRESS });

	making->interface = 0;
	if (!w || !is_as_walked(skb, w) || readdress(skb, w, making))
		return TC_ACT_SHOT;
	skb->tc_index = DONE;
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
			cookie_sent(w, a);
			bpf_map_delete_elem(&handshakes, key);
		}
	}
	/* It began before the programs did. */
	if (a->rate.stack == STACK_UNKNOWN && sent_by_kernel(skb))
		a->rate.stack = STACK_ADDRESSES_FIRST;
	if (w->places[HEARTBEAT].length)
		probe_sent(skb, w, key, a);
	way_used(skb, w, a);
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

/* Of the bytes that an association sends what copies by that interface may be, in percent. */
INLINE __u32 budget(const struct settings *now, __u32 interface)
{
	__u32 *most = bpf_map_lookup_elem(&hooked, &interface);

	return most && *most < now->budget_percent ? *most : now->budget_percent;
}

/* The reasons among those of a packet for which it is to be copied, if the budget allows for it. */
INLINE __u32 wanted(const struct settings *now, const struct walk *w, struct association *a, __u32 reasons)
{
	if (now->mode != BICAST_ADAPTIVE)
		return bicast_wanted(now->mode, reasons);
	/* The rate is that of first transmissions: a SACK without gaps is none. */
	if (!(w->fields.found & FOUND_DATA))
		reasons &= ~(__u32)BICAST_REST;
	return bicast_rate_sent(&a->rate, reasons, w->ip_length, now->budget_percent, bpf_ktime_get_ns() / 1000);
}

/* Has the budget pay for a copy for `reasons` by that interface; whether it does. */
INLINE int pay(const struct settings *now, const struct walk *w, struct association *a, __u32 interface, __u32 reasons,
	       __u32 patient)
{
	__u32 data = w->fields.found & FOUND_DATA;

	if (now->mode != BICAST_ADAPTIVE)
		return 1;
	if (!bicast_rate_affords(&a->rate, w->ip_length, budget(now, interface), patient))
		return 0;
	bicast_rate_copied(&a->rate, data ? reasons : 0, w->fields.tsn_low, w->ip_length, w->best.remote + 1);
	return 1;
}

/* What is to be done with a packet: how often it goes by its own path again, and whether by another. */
struct plan {
	__u32 reasons; /* 0: no copy */
	__u32 thrice;  /* again by its own path: at 5 % two paths lose one retransmission in 400, and Linux then waits for its timer */
	__u32 known;   /* again, to make a path known */
};

/* Learns from a packet, and decides. */
INLINE struct plan decide(struct __sk_buff *skb, struct walk *w, const struct settings *now, const struct key *key,
			  struct association *a)
{
	struct plan plan = {};

	if (!lock(a))
		return plan;
	a->seen_ns = bpf_ktime_get_coarse_ns();
	learn_from_sent(skb, w, key, a);
	plan.reasons = wanted(now, w, a, bicast_sctp_classify(&a->tsn, &w->fields));
	plan.known = now->mode != BICAST_OFF && makes_known(w, a) && pay(now, w, a, skb->ifindex, 0, 0);
	if (!plan.reasons || !choose(skb, w, a)) {
		plan.reasons = 0;
	} else if (!pay(now, w, a, w->best.interface, plan.reasons, plan.reasons == BICAST_REST)) {
		add(&a->skipped[SKIPPED_BUDGET], plan.reasons != BICAST_REST);
		plan.reasons = 0;
	} else {
		plan.thrice = now->mode == BICAST_ADAPTIVE && (plan.reasons & BICAST_RETRANSMISSION) &&
			      pay(now, w, a, skb->ifindex, 0, 1);
	}
	unlock(a);
	return plan;
}

INLINE void judge(struct __sk_buff *skb, struct walk *w, const struct settings *now, const struct key *key)
{
	/* Who asks for a copy's next hop sends by this hook too, inside this run, and overwrites `w`. */
	const __u32 length = w->ip_length, ended = w->fields.found & FOUND_END;
	struct association *a;
	struct plan plan;

	a = of_an_association(w) ? associate(key) : bpf_map_lookup_elem(&associations, key);
	if (!a)
		return;
	plan = decide(skb, w, now, key, a);
	add(&a->sent_packets, 1);
	add(&a->sent_bytes, length);
	count(COUNT_SENT_PACKETS, 1);
	count(COUNT_SENT_BYTES, length);
	if (plan.known)
		repeat(skb, a, BICAST_BEGIN, length);
	if (plan.reasons)
		copy(skb, w, a, plan.reasons, length);
	if (plan.thrice)
		repeat(skb, a, plan.reasons, length);
	if (ended)
		forget(key, a);
}

/* A packet that leaves: of this host's stack, or, with `forwarding`, of a host's behind this one. */
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
	if (walked != WALKED_SCTP || !(now->forwarding || bpf_map_lookup_elem(&own, &w->source)))
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
	struct making *making = bpf_map_lookup_elem(&makings, &(__u32){ 0 });

	if (!now || !making)
		return TC_ACT_UNSPEC;
	if (skb->tc_index == DONE)
		skb->tc_index = 0;
	else if (making->interface == skb->ifindex)
		return send_copy(skb, making);
	else
		consider_sent(skb, now);
	return TC_ACT_UNSPEC;
}

/* What the receiver has, and its report of what it has twice. */
INLINE void take_report(struct __sk_buff *skb, const struct settings *now, const struct walk *w, struct association *a)
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
	add(&a->duplicates, count);
	bicast_rate_acknowledged(&a->rate, highest, ntohl(first), count, now->budget_percent, bpf_ktime_get_ns() / 1000);
}

/* What has arrived for the association of `out`. */
INLINE void learn_from_received(struct __sk_buff *skb, const struct settings *now, const struct walk *w,
				const struct key *out, struct association *a)
{
	if (lock(a)) {
		arrived_at(now, a, &w->destination);
		if (w->places[ASCONF].length)
			changed(skb, w, a, 0);
		if (w->places[SACK].length)
			take_report(skb, now, w, a);
		unlock(a);
	}
	if (w->fields.found & FOUND_END)
		forget(out, a);
}

/* A router says that a packet was too long for the path to the peer, and quotes its tag, which nobody else knows. */
INLINE void learn_mtu(struct __sk_buff *skb, const struct settings *now, struct walk *w)
{
	struct { __u8 type, code; __u16 sum, unused, mtu; } icmp;
	struct { __u16 from, to; __u32 tag; } sctp;
	__u32 protocol, fragment, at;
	__u64 place;
	struct association *a;
	struct key key;

	if (read_ip(skb, w, ETHERNET, &fragment) != (w->is_ipv6 ? PROTOCOL_ICMPV6 : PROTOCOL_ICMP) ||
	    bpf_skb_load_bytes(skb, w->at, &icmp, sizeof(icmp)) ||
	    (w->is_ipv6 ? icmp.type != 2 : icmp.type != 3 || icmp.code != 4))
		return;
	at = w->at + sizeof(icmp);
	protocol = read_ip(skb, w, at, &fragment);
	if (protocol == PROTOCOL_UDP ? !read_udp(skb, w, now->udp_port) : protocol != PROTOCOL_SCTP)
		return;
	if (bpf_skb_load_bytes(skb, w->at, &sctp, sizeof(sctp)))
		return;
	key = (struct key){ sctp.tag, sctp.from, sctp.to };
	a = bpf_map_lookup_elem(&associations, &key);
	if (!a || !lock(a))
		return;
	place = remote_place(a, &w->destination);
	if (place < ADDRESSES)
		a->remotes[index(place)].mtu = ntohs(icmp.mtu);
	unlock(a);
}

SEC("tcx/ingress")
int bicast_ingress(struct __sk_buff *skb)
{
	struct settings *now = bpf_map_lookup_elem(&settings, &(__u32){ 0 });
	struct walk *w = new_walk(SCRATCH_INGRESS);
	struct key key, out;
	struct association *a;
	enum walked walked;
	__u32 *tag;

	if (!now || !w)
		return TC_ACT_UNSPEC;
	walked = walk(skb, w, now->udp_port);
	if (walked == WALKED_FOREIGN)
		learn_mtu(skb, now, w);
	if (walked != WALKED_SCTP)
		return TC_ACT_UNSPEC;
	key = (struct key){ w->tag, w->destination_port, w->source_port };
	if (w->places[INIT_ACK].length)
		shake_hands(skb, w, &key, 0);
	if (w->places[HEARTBEAT_ACK].length)
		probe_answered(skb, now, w, &key);
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
