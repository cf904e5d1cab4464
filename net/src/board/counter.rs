//! What a stack counts: what it did, and what it dropped, by reason.

use fabric::listed;

listed! {
    /// What is counted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(usize)]
    #[non_exhaustive]
    pub enum Counter {
        /// Frames received.
        FramesReceived => "frames_received",
        /// Frames sent.
        FramesSent => "frames_sent",
        /// Connections made by a program here.
        Connected => "connected",
        /// Connections that listeners have taken.
        Accepted => "accepted",
        /// Connections that were refused, by us or by the other side.
        Refused => "refused",
        /// Connections that the other side has reset.
        Reset => "reset",
        /// Connections given up because the other side was silent for too long.
        TimedOut => "timed_out",
        /// Connections given up because the other side's member has left the LAN.
        Gone => "gone",
        /// Connections not made because a message of ICMP says that the other side is not reached.
        NotReached => "not_reached",
        /// Echo requests answered.
        EchoesAnswered => "echoes_answered",
        /// Questions after one of our addresses answered.
        NeighboursAnswered => "neighbours_answered",
        /// Resets sent for segments that belong to no connection.
        ResetsSent => "resets_sent",
        /// Acknowledgements sent to segments that would change a connection and may be forged (RFC 5961).
        ChallengesSent => "challenges_sent",
        /// First segments answered with a cookie: their listener's backlog was full, and nothing was kept of them.
        CookiesSent => "cookies_sent",
        /// Connections made of cookies that came back.
        CookiesAccepted => "cookies_accepted",
        /// Segments refused that came to listeners which had given cookies, and answer none that is still good.
        CookiesRefused => "cookies_refused",
        /// Questions sent to sides that were silent for as long as keep-alive says.
        ProbesSent => "probes_sent",
        /// Errors sent by ICMP: nobody has bound a port, or a part of a packet has not come in time.
        ErrorsSent => "errors_sent",
        /// Errors received by ICMP that are about a packet under way, or a socket.
        ErrorsReceived => "errors_received",
        /// Segments with data that were sent again, or ask whether a window is still closed.
        Resent => "segments_resent",
        /// Segments received whose data is behind a gap: what is in front of it was lost, or comes later.
        OutOfOrder => "segments_out_of_order",
        /// Packets of others passed on.
        Forwarded => "forwarded",
        /// Packets for a distributed address handed to their targets.
        Distributed => "distributed",
        /// Questions sent to targets after flows that are not known.
        FlowsAsked => "flows_asked",
        /// Received segments for a distributed address dropped: the table of flows, or the client's part of it, is full.
        FlowsFull => "dropped_flows_full",
        /// Received packets for a distributed address dropped: in fragments, or nobody knows their flow.
        FlowUnknown => "dropped_flow",
        /// Received messages about distributed addresses dropped: not from a stack that has a part, or malformed.
        ExchangeRefused => "dropped_exchange",
        /// Received frames dropped: a tag of a VLAN that the stack is not in, or none where it is in VLANs alone.
        Vlan => "dropped_vlan",
        /// Received frames dropped: a length or a field that makes no sense.
        Malformed => "dropped_malformed",
        /// Received frames dropped: a wrong checksum.
        BadChecksum => "dropped_checksum",
        /// Received frames dropped: the address of a group, of this stack, of nobody or of another member as source.
        BadSource => "dropped_source",
        /// Received frames dropped: for another address.
        NotOurs => "dropped_not_ours",
        /// Packets made whole from fragments.
        Reassembled => "packets_reassembled",
        /// Fragments sent of packets that are too long for one frame.
        FragmentsSent => "fragments_sent",
        /// Received fragments dropped: they overlap or contradict others, whose packet is given up.
        FragmentOverlap => "dropped_fragment_overlap",
        /// Received fragments dropped: too short to show what the packet is for.
        FragmentTiny => "dropped_fragment_tiny",
        /// Received fragments dropped: their packet has too many.
        FragmentsEndless => "dropped_fragments_endless",
        /// Packets in fragments given up: too many, or too many of their source.
        FragmentsFull => "dropped_fragments_full",
        /// Packets in fragments given up: some did not come in time.
        FragmentsTimedOut => "dropped_fragments_time",
        /// Packets of others dropped: their last hop was here.
        HopLimit => "dropped_hop_limit",
        /// Packets of others dropped: nobody knows the way.
        NoRoute => "dropped_no_route",
        /// Packets of others dropped: the system file does not let packets of their source into the LAN where they would go.
        RouteForbidden => "dropped_route_forbidden",
        /// Packets of others dropped: too long for the next hop, and not to be cut.
        TooLong => "dropped_too_long",
        /// Received frames dropped: a header of IPv6 that must not be skipped, or too many; options of IPv4 in a packet of
        /// others.
        Extension => "dropped_extension",
        /// Received frames dropped: neither TCP, UDP, an echo request nor an error.
        OtherProtocol => "dropped_protocol",
        /// Received errors of ICMP dropped: about nothing that is under way.
        ErrorNotOurs => "dropped_error",
        /// Received segments dropped: of a listener whose backlog is full.
        BacklogFull => "dropped_backlog",
        /// Half-open connections given up for newer ones: their listener's backlog was full.
        HalfOpenEvicted => "dropped_half_open",
        /// Received segments dropped: for one connection more than the stack may have.
        ConnectionsFull => "dropped_connections",
        /// Received segments dropped: no buffer was left for their data.
        PoolExhausted => "dropped_pool",
        /// Received resets dropped: not exactly at the next byte that is expected.
        OutOfWindow => "dropped_window",
        /// Received datagrams dropped: nobody has bound the port.
        NoSocket => "dropped_no_socket",
        /// Received datagrams dropped: their socket has no room.
        SocketFull => "dropped_socket_full",
        /// Frames not sent: their target is full, and they are answers or too many wait for it.
        TargetFull => "dropped_target_full",
        /// Frames not sent: the LAN has no member with that address, or does not reach it, and no route leads there.
        Unreachable => "dropped_unreachable",
        /// Questions sent after the MAC addresses of neighbours.
        NeighboursAsked => "neighbours_asked",
        /// Neighbours that did not answer.
        NeighboursUnreachable => "neighbours_unreachable",
        /// Frames in which another station says that it has an address of this stack.
        AddressConflicts => "address_conflicts",
        /// Received frames dropped: they are about neighbours, and malformed, or contradict what is known of one that may still be there.
        NeighbourIgnored => "dropped_neighbour",
        /// Packets dropped that have waited for a neighbour's answer: the neighbour is unreachable, or others came after them.
        Unresolved => "dropped_unresolved",
        /// Connections of members to addresses outside that were made. This one and those below are a gateway's.
        OutsideConnections => "outside_connections",
        /// Flows of datagrams and of echo requests of members to addresses outside.
        OutsideFlows => "outside_flows",
        /// Bytes of members that went outside.
        OutsideBytesOut => "outside_bytes_out",
        /// Bytes that came from outside for members.
        OutsideBytesIn => "outside_bytes_in",
        /// Questions after names of members answered.
        OutsideNames => "outside_names",
        /// Connections and flows refused: the rules forbid the guest or the address.
        OutsideForbidden => "outside_refused_forbidden",
        /// Connections and flows refused: their member, or all together, have as many as they may.
        OutsideFull => "outside_refused_full",
        /// Connections and flows refused: the system lacks descriptors or memory, or does not let this user send echo requests.
        OutsideLacking => "outside_refused_lacking",
        /// Connections and flows that their address has refused, or that did not reach it.
        OutsideUnreached => "outside_unreached",
        /// Datagrams dropped that came from outside or went there: their target had no room.
        OutsideDropped => "outside_dropped",
    }
}
