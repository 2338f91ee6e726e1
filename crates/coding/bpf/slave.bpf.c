// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Keeps this host's IP off a slave interface: what arrives there goes to the NC layer, by a packet socket, which hears it
 * before this does; IP has it once, by the master. Everything else stays as it was: other EtherTypes, such as those of
 * 802.1X, and VLANs, which are interfaces of their own.
 */
#include "skb.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define TC_ACT_UNSPEC (-1)
#define TC_ACT_SHOT 2

SEC("tcx/ingress")
int coding_slave(struct __sk_buff *skb)
{
	__u32 protocol = skb->protocol;

	if (skb->vlan_present)
		return TC_ACT_UNSPEC;
	if (protocol == ntohs(0x0800) || protocol == ntohs(0x0806) || protocol == ntohs(0x86dd))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}
