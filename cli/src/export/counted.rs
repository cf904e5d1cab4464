//! Counters that a report has by name, and the metrics that they are. Tests check that no counter is left out.

/// A metric made of counters: one, or several that a label tells apart.
#[derive(Debug)]
pub struct Counted {
    /// Its name behind the prefix of its subject.
    pub name: &'static str,
    pub help: &'static str,
    /// The label whose value is the counter's name without `dropped_`. None for a single counter.
    pub label: Option<&'static str>,
    /// The counters. A report has none that stands at zero.
    pub of: &'static [&'static str],
}

impl Counted {
    const fn one(
        name: &'static str,
        help: &'static str,
        of: &'static [&'static str; 1],
    ) -> Counted {
        Counted { name, help, label: None, of }
    }
}

/// Frames of a member of a LAN that were not sent.
pub const GIVEN_BACK: &[&str] = &["full", "no_member", "refused", "lost"];

/// Connections of a stack that came about.
pub const OPENED: &[&str] = &["connected", "accepted"];

/// Connections of a stack that did not, or ended so.
pub const FAILED: &[&str] = &["refused", "reset", "timed_out", "gone", "not_reached"];

/// Of a member of a LAN.
pub const LAN: &[Counted] = &[
    Counted::one(
        "sent_frames",
        "Frames sent, each copy of a broadcast included.",
        &["frames_sent"],
    ),
    Counted::one("sent_bytes", "Bytes of the frames sent.", &["bytes_sent"]),
    Counted::one("sent_segments", "Segments that the frames sent stand for.", &["segments_sent"]),
    Counted::one("sent_group_frames", "Frames sent to a group, once each.", &["group_frames_sent"]),
    Counted::one("received_frames", "Frames received and given out.", &["frames_received"]),
    Counted::one("received_bytes", "Bytes of the frames received.", &["bytes_received"]),
    Counted::one(
        "received_segments",
        "Segments that the frames received stand for.",
        &["segments_received"],
    ),
    Counted {
        name: "frames_given_back",
        help: "Frames that were not sent, by reason: the target is full, no member has the address, the frame is wrong, the path is lost.",
        label: Some("reason"),
        of: GIVEN_BACK,
    },
    Counted {
        name: "frames_dropped",
        help: "Frames dropped, by reason.",
        label: Some("reason"),
        of: &[
            "dropped_length",
            "dropped_offload",
            "dropped_source",
            "dropped_vlan",
            "dropped_address",
            "dropped_discovery",
            "dropped_device",
        ],
    },
    Counted::one(
        "frames_answered",
        "Frames that the member answered on behalf of the one that was asked.",
        &["answered_here"],
    ),
    Counted::one("paths_made", "Paths made to other members.", &["paths_made"]),
    Counted::one("paths_failed", "Paths that could not be made.", &["paths_failed"]),
    Counted::one(
        "paths_refused",
        "Paths refused to a member that asks for one again too often.",
        &["paths_refused"],
    ),
    Counted::one(
        "captures_lost",
        "Copies of sent frames for which a member that captures had no room.",
        &["captures_lost"],
    ),
];

/// Of a TCP/IP stack.
pub const STACK: &[Counted] = &[
    Counted::one("received_frames", "Frames received.", &["frames_received"]),
    Counted::one("sent_frames", "Frames sent.", &["frames_sent"]),
    Counted {
        name: "connections_opened",
        help: "Connections made by a program here, and taken by listeners.",
        label: Some("way"),
        of: OPENED,
    },
    Counted {
        name: "connections_failed",
        help: "Connections refused, ended or not made, by reason.",
        label: Some("reason"),
        of: FAILED,
    },
    Counted {
        name: "answers",
        help: "Echo requests and questions after an address answered.",
        label: Some("kind"),
        of: &["echoes_answered", "neighbours_answered"],
    },
    Counted {
        name: "neighbours",
        help: "Where a stack finds neighbours itself: questions sent, neighbours that did not answer, and frames in which another claims its address.",
        label: Some("kind"),
        of: &["neighbours_asked", "neighbours_unreachable", "address_conflicts"],
    },
    Counted {
        name: "empty_segments_sent",
        help: "Segments sent without data, by kind: resets, challenges, cookies, and probes of keep-alive.",
        label: Some("kind"),
        of: &["resets_sent", "challenges_sent", "cookies_sent", "probes_sent"],
    },
    Counted {
        name: "cookies_returned",
        help: "Cookies that came back, and were taken or refused.",
        label: Some("outcome"),
        of: &["cookies_accepted", "cookies_refused"],
    },
    Counted {
        name: "icmp_errors",
        help: "Errors sent and received by ICMP.",
        label: Some("way"),
        of: &["errors_sent", "errors_received"],
    },
    Counted::one(
        "segments_resent",
        "Segments with data that were sent again, or ask whether a window is still closed.",
        &["segments_resent"],
    ),
    Counted::one(
        "segments_out_of_order",
        "Segments received whose data is behind a gap: what is in front of it was lost, or comes later.",
        &["segments_out_of_order"],
    ),
    Counted::one("packets_forwarded", "Packets of others passed on.", &["forwarded"]),
    Counted::one(
        "packets_distributed",
        "Packets for distributed addresses handed to their targets.",
        &["distributed"],
    ),
    Counted::one(
        "flows_asked",
        "Questions sent to targets of distributed addresses after flows that are not known.",
        &["flows_asked"],
    ),
    Counted::one(
        "packets_reassembled",
        "Packets made whole from fragments.",
        &["packets_reassembled"],
    ),
    Counted::one(
        "fragments_sent",
        "Fragments sent of packets that are too long for one frame.",
        &["fragments_sent"],
    ),
    Counted::one(
        "outside_connections",
        "Connections of members to addresses outside that were made. This and the next ones are a gateway's.",
        &["outside_connections"],
    ),
    Counted::one(
        "outside_flows",
        "Flows of datagrams and echo requests of members to addresses outside.",
        &["outside_flows"],
    ),
    Counted::one(
        "outside_sent_bytes",
        "Bytes of members that went outside.",
        &["outside_bytes_out"],
    ),
    Counted::one(
        "outside_received_bytes",
        "Bytes that came from outside for members.",
        &["outside_bytes_in"],
    ),
    Counted::one("outside_names", "Questions after names of members answered.", &["outside_names"]),
    Counted {
        name: "outside_refused",
        help: "Connections and flows to addresses outside that were refused or did not get there, by reason.",
        label: Some("reason"),
        of: &[
            "outside_refused_forbidden",
            "outside_refused_full",
            "outside_refused_lacking",
            "outside_unreached",
        ],
    },
    Counted::one(
        "outside_dropped",
        "Datagrams dropped that came from outside or went there: their target had no room.",
        &["outside_dropped"],
    ),
    Counted {
        name: "dropped",
        help: "Frames, packets, segments and datagrams dropped, by reason.",
        label: Some("reason"),
        of: &[
            "dropped_vlan",
            "dropped_malformed",
            "dropped_checksum",
            "dropped_source",
            "dropped_not_ours",
            "dropped_fragment_overlap",
            "dropped_fragment_tiny",
            "dropped_fragments_endless",
            "dropped_fragments_full",
            "dropped_fragments_time",
            "dropped_hop_limit",
            "dropped_no_route",
            "dropped_route_forbidden",
            "dropped_too_long",
            "dropped_extension",
            "dropped_protocol",
            "dropped_error",
            "dropped_backlog",
            "dropped_half_open",
            "dropped_connections",
            "dropped_pool",
            "dropped_window",
            "dropped_no_socket",
            "dropped_socket_full",
            "dropped_target_full",
            "dropped_unreachable",
            "dropped_neighbour",
            "dropped_unresolved",
            "dropped_flows_full",
            "dropped_flow",
            "dropped_exchange",
        ],
    },
];

/// A counter of the halves of a path.
#[derive(Debug)]
pub struct OfHalf {
    pub counter: &'static str,
    /// Its metric behind `siga_path_`, without `_total`.
    pub name: &'static str,
    pub help: &'static str,
    /// Name and help of the readers' metric, where both sides count the same things, which a sum would count twice. Otherwise a
    /// label tells the sides apart.
    pub of_reader: Option<(&'static str, &'static str)>,
    pub is_gauge: bool,
}

impl OfHalf {
    /// A counter of what goes from the writer to the reader.
    const fn flow(
        counter: &'static str,
        (name, help): (&'static str, &'static str),
        of_reader: (&'static str, &'static str),
    ) -> OfHalf {
        OfHalf { counter, name, help, of_reader: Some(of_reader), is_gauge: false }
    }

    /// A counter of what a side does.
    const fn deed(counter: &'static str, name: &'static str, help: &'static str) -> OfHalf {
        OfHalf { counter, name, help, of_reader: None, is_gauge: false }
    }

    const fn gauge(counter: &'static str, name: &'static str, help: &'static str) -> OfHalf {
        OfHalf { counter, name, help, of_reader: None, is_gauge: true }
    }
}

/// Of the halves of a path's queues.
pub const HALVES: &[OfHalf] = &[
    OfHalf::flow(
        "messages",
        ("messages", "Messages sent."),
        ("received_messages", "Messages received."),
    ),
    OfHalf::flow(
        "bytes",
        ("bytes", "Bytes of messages sent."),
        ("received_bytes", "Bytes of messages received."),
    ),
    OfHalf::flow(
        "buffers",
        ("buffers", "Buffers sent."),
        ("received_buffers", "Buffers received."),
    ),
    OfHalf::flow(
        "in_place",
        ("buffers_in_place", "Buffers sent with their bytes in place."),
        ("received_buffers_in_place", "Buffers received with their bytes in place."),
    ),
    OfHalf::flow(
        "packs",
        ("packed_buffers", "Buffers sent with several messages."),
        ("received_packed_buffers", "Buffers received with several messages."),
    ),
    OfHalf::flow(
        "announced",
        ("large_messages", "Large messages sent."),
        ("received_large_messages", "Large messages received."),
    ),
    OfHalf::flow(
        "control",
        ("control_records", "Control records sent."),
        ("received_control_records", "Control records received."),
    ),
    OfHalf {
        is_gauge: true,
        ..OfHalf::flow(
            "lent_bytes",
            ("lent_bytes", "Storage that the writer lends now."),
            ("borrowed_bytes", "Storage that the reader has borrowed now."),
        )
    },
    OfHalf::flow(
        "lent",
        ("storages_lent", "Storages lent by the writer."),
        ("storages_borrowed", "Storages borrowed by the reader."),
    ),
    OfHalf::flow(
        "retired",
        ("lent_storages_retired", "Storages that the writer has lent and retired."),
        (
            "borrowed_storages_retired",
            "Storages that the reader has borrowed and that were retired.",
        ),
    ),
    OfHalf::deed("full", "full", "Sends refused because the reader is too far behind."),
    OfHalf::deed("rings", "rings", "Doorbells rung."),
    OfHalf::deed("heard", "rings_heard", "Doorbells heard."),
    OfHalf::deed("polls", "polls", "Polls for work."),
    OfHalf::deed("polls_empty", "polls_empty", "Polls that found no work."),
    OfHalf::deed("sleeps", "sleeps", "Times gone to sleep."),
    OfHalf::deed("wakes_unproductive", "wakes_unproductive", "Times woken without finding work."),
    OfHalf::deed("spinning_ns", "spinning_seconds", "Time spent polling an empty queue."),
    OfHalf::gauge(
        "used_bytes",
        "used_bytes",
        "Of the storage lent, pages that hold something, when the writer looked last.",
    ),
    OfHalf::gauge(
        "violation",
        "violation",
        "The rule that the peer has broken, by number; 0 if none.",
    ),
    OfHalf::gauge(
        "outstanding",
        "outstanding_messages",
        "Messages of IUCV and APPC: of the writer sent and not complete, of the reader received and not replied to.",
    ),
    OfHalf::gauge(
        "waiting",
        "waiting_messages",
        "Messages of IUCV and APPC: of the writer complete and not taken, of the reader arrived and not received.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that each of these counters is in one metric, and that there are no others.
    fn is_whole(table: &[Counted], counters: &[&str]) {
        let mut named: Vec<&str> = table.iter().flat_map(|metric| metric.of).copied().collect();
        let mut counters = counters.to_vec();
        named.sort_unstable();
        counters.sort_unstable();
        assert_eq!(named, counters);
    }

    #[test]
    fn every_counter_of_a_member_a_stack_and_a_half_is_in_one_metric() {
        is_whole(LAN, &net::lan::counters::Counter::ALL.map(|counter| counter.name()));
        is_whole(STACK, &net::board::Counter::ALL.map(|counter| counter.name()));
        let halves = siga::raw::Counter::ALL.map(|counter| counter.name());
        let gauges = ["outstanding", "waiting"];
        let mut counters: Vec<&str> = halves.into_iter().chain(gauges).collect();
        let mut named: Vec<&str> = HALVES.iter().map(|half| half.counter).collect();
        counters.sort_unstable();
        named.sort_unstable();
        assert_eq!(named, counters);
    }
}
