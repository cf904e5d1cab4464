//! What observers see of a stack.

use super::*;
use crate::board::DistributedRow;
use crate::tcpip::distributor::{DistributedTarget, DistributorRole};

impl Stack {
    /// A connection is shown anew with the next [`Stack::show`].
    pub(super) fn show_later(&mut self, index: u32) {
        if let Some(rows) = self.unshown.get_mut(index as usize / 64) {
            *rows |= 1 << (index % 64);
        }
    }

    /// Shows how the stack stands, and what has changed, on the board of its member.
    pub fn show(&mut self, now: u64, words: &Words) {
        let usage = self.pool();
        let overview = Overview {
            shown_ns: now,
            mtu: self.options.mtu as u64,
            connections: self.connections.len() as u64,
            time_wait: self.time_wait.len() as u64,
            buffer_bytes: usage.buffer_bytes as u64,
            in_use: usage.in_use as u64,
            in_use_max: usage.in_use_max as u64,
            high_water: usage.high_water as u64,
            free: usage.free as u64,
        };
        board::show(words, &overview, self.counters.all());
        for (at, rows) in self.unshown.iter_mut().enumerate() {
            while *rows != 0 {
                let bit = rows.trailing_zeros();
                *rows &= *rows - 1;
                let index = at as u32 * 64 + bit;
                if (index as usize) < CONNECTION_ROWS {
                    let row = self.connections.get_mut(index).map(|connection| connection.row());
                    board::show_row(words, index as usize, row.as_ref());
                }
            }
        }
        if self.has_distributions() {
            board::show_distributed(words, self.distributed_rows().into_iter());
        }
        if std::mem::take(&mut self.are_ways_unshown) {
            self.show_ways(words);
        }
        if !std::mem::take(&mut self.are_sockets_unshown) {
            return;
        }
        let listeners = self.listeners.iter().map(|(local, listener)| {
            let counts = (listener.backlog as u64, listener.ready.len() as u64);
            Row::socket(RowState::Listen, *local, counts)
        });
        let sockets = self.sockets.bound.iter().map(|(local, socket)| {
            Row::socket(RowState::Udp, *local, (0, socket.datagrams.len() as u64))
        });
        let mut shown = listeners.chain(sockets).take(SOCKET_ROWS);
        for number in CONNECTION_ROWS..CONNECTION_ROWS + SOCKET_ROWS {
            board::show_row(words, number, shown.next().as_ref());
        }
    }

    /// The targets of distributed addresses. A target alone knows of itself only.
    fn distributed_rows(&self) -> Vec<DistributedRow> {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let of_address = |one: Distributed| {
            let own = DistributedTarget {
                address: one.own,
                is_there: true,
                connections: number(one.connections),
                packets: 0,
                bytes: 0,
            };
            let targets = match one.role {
                DistributorRole::Target => vec![own],
                _ => one.targets,
            };
            targets.into_iter().enumerate().map(move |(at, target)| {
                (
                    at,
                    DistributedRow {
                        address: one.address,
                        role: one.role,
                        target: target.address,
                        is_there: target.is_there,
                        connections: target.connections,
                        packets: target.packets,
                        bytes: target.bytes,
                        flows: number(one.flows),
                        flows_max: number(one.flows_max),
                        refused: u32::try_from(one.refused).unwrap_or(u32::MAX),
                    },
                )
            })
        };
        // Each address has a row before any has its second: there are not enough for all targets of all.
        let mut rows: Vec<_> = self.distributed().flat_map(of_address).collect();
        rows.sort_by_key(|(at, _)| *at);
        rows.into_iter().map(|(_, row)| row).collect()
    }

    fn show_ways(&self, words: &Words) {
        let routes = &self.output.routes;
        let interfaces = routes.interfaces().iter().flat_map(|interface| {
            interface.addresses.iter().map(|address| board::Way::Interface {
                lan: interface.lan as u16,
                vlan: interface.vlan,
                mtu: interface.mtu as u64,
                address: *address,
                forwards: self.options.forwards,
            })
        });
        let shown = routes.routes().iter().map(|route| board::Way::Route {
            network: route.to.address(),
            bits: route.to.bits(),
            via: route.via,
            is_there: routes.has_neighbour(route.via),
        });
        board::show_ways(words, interfaces.chain(shown));
    }
}
