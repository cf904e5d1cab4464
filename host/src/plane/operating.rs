//! Orders of observers to TCPIP machines. The host passes an order on, and the answer back: a machine has no other door for whoever operates the
//! system.

use std::collections::{BTreeMap, BTreeSet};

use fabric::control::{NO_DATA, ORDERS_MAX, Order, Placed, Problem, Reply};
use fabric::name::{LanName, Name};
use tracing::info;

use super::{Answer, Host};

/// The machines that take orders, and the orders that they have not answered.
#[derive(Debug, Default)]
pub(super) struct Operating {
    machines: BTreeSet<Name>,
    given: BTreeMap<u64, Given>,
    last: u64,
}

/// An order that was passed on.
#[derive(Clone, Copy, Debug)]
struct Given {
    machine: Name,
    /// The observer's connection, and the serial of its request. None once the observer is gone.
    observer: Option<(u64, u32)>,
}

impl Operating {
    /// Forgets an observer, whose answers nobody waits for any more. Its orders are at their machines until those answer, and count there.
    pub(super) fn forget_observer(&mut self, number: u64) {
        for given in self.given.values_mut() {
            given.observer.take_if(|(observer, _)| *observer == number);
        }
    }
}

impl Host {
    /// A guest is a machine that takes orders.
    pub(super) fn note_machine(&mut self, number: u64, serial: u32, machine: Name) {
        self.operating.machines.insert(machine);
        self.send(number, serial, &Reply::Done { path: 0 }, &[]);
    }

    /// Passes the order of an observer on to a machine.
    pub(super) fn order(
        &mut self,
        (observer, serial): (u64, u32),
        machine: Name,
        lan: LanName,
        processor: Option<u32>,
    ) -> Answer {
        let guest = self.guests.get(&machine).ok_or(Problem::NotAttached)?;
        let connection = guest.connection;
        let Operating { machines, given, last } = &mut self.operating;
        if !machines.contains(&machine) {
            return Err(Problem::NoMachine);
        }
        // A driver elsewhere could not ask for the address when it is to be taken over.
        if processor.is_some() && self.lans.may_distribute_at(machine, lan) {
            return Err(Problem::DriverInline);
        }
        let waiting = given.values().filter(|given| given.machine == machine).count();
        // What an observer wants never detaches a machine that leaves its packets unread.
        if waiting >= ORDERS_MAX || !self.connections[&connection].has_room() {
            return Err(Problem::NotAnswering);
        }
        *last += 1;
        let order = *last;
        given.insert(order, Given { machine, observer: Some((observer, serial)) });
        let credentials = &self.connections[&observer].credentials;
        let place = processor.map_or("inline".to_owned(), |number| number.to_string());
        info!(%machine, %lan, processor = %place, user = credentials.user, "a driver is to be placed");
        self.send(connection, 0, &Reply::Order(Order { order, lan, processor }), &[]);
        Ok(())
    }

    /// A machine has answered an order. Its observer may have gone: that is no fault.
    pub(super) fn order_done(&mut self, machine: Name, order: u64, placed: Placed) {
        let given = &mut self.operating.given;
        if given.get(&order).is_none_or(|given| given.machine != machine) {
            return;
        }
        let answered = given.remove(&order).and_then(|given| given.observer);
        let Some((observer, serial)) = answered else { return };
        let failed = |problem| Reply::Failed { problem, data: NO_DATA };
        let reply = match placed {
            Placed::At(processor) => Reply::DriverPlaced { processor },
            Placed::NoLan => failed(Problem::NoLan),
            Placed::Lacking => failed(Problem::MachineResources),
            Placed::NotRun => failed(Problem::ProcessorTaken),
        };
        self.send(observer, serial, &reply, &[]);
    }

    /// Forgets a machine that is gone. Whoever waits for its answers learns that.
    pub(super) fn forget_machine(&mut self, machine: Name) {
        if !self.operating.machines.remove(&machine) {
            return;
        }
        let of_machine = |_: &u64, given: &mut Given| given.machine == machine;
        let gone: Vec<Given> =
            self.operating.given.extract_if(.., of_machine).map(|(_, given)| given).collect();
        for (observer, serial) in gone.into_iter().filter_map(|given| given.observer) {
            let failed = Reply::Failed { problem: Problem::NotAttached, data: NO_DATA };
            self.send(observer, serial, &failed, &[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use fabric::control::{PACKET_BYTES_MAX, Request};
    use os::packets::Packets;

    use super::super::Handle;
    use super::*;
    use crate::config::Source;
    use crate::system::System;

    struct Scene {
        host: Host,
        handle: Handle,
    }

    impl Scene {
        fn new() -> Scene {
            Scene::of(System::open())
        }

        fn of(system: System) -> Scene {
            let (host, handle) = Host::new(system).unwrap();
            Scene { host, handle }
        }

        fn connect(&mut self, first: &Request) -> Packets {
            let packets = self.handle.connect().unwrap();
            packets.send(&first.bytes(1), &[]).unwrap();
            assert_eq!(self.next(&packets), Some((1, Reply::Attached)));
            packets
        }

        fn machine(&mut self, name: &str) -> Packets {
            let packets = self.connect(&Request::Attach { name: name.parse().unwrap() });
            packets.send(&Request::TakeOrders.bytes(2), &[]).unwrap();
            assert_eq!(self.next(&packets), Some((2, Reply::Done { path: 0 })));
            packets
        }

        /// What the host has sent to somebody.
        fn next(&mut self, packets: &Packets) -> Option<(u32, Reply)> {
            self.host.poll(0).unwrap();
            self.host.poll(0).unwrap();
            let mut buffer = [0; PACKET_BYTES_MAX];
            let packet = packets.receive(&mut buffer).ok().filter(|packet| packet.bytes > 0)?;
            Some(Reply::parse(&buffer[..packet.bytes]).unwrap())
        }

        /// The order that the host passes on to a machine.
        fn order_at(&mut self, machine: &Packets) -> Order {
            match self.next(machine) {
                Some((0, Reply::Order(order))) => order,
                other => panic!("{other:?}"),
            }
        }
    }

    fn place(machine: &str, processor: Option<u32>) -> Request {
        let (machine, lan) = (machine.parse().unwrap(), "hs0".parse().unwrap());
        Request::PlaceDriver { machine, lan, processor }
    }

    fn failed(serial: u32, problem: Problem) -> Option<(u32, Reply)> {
        Some((serial, Reply::Failed { problem, data: NO_DATA }))
    }

    #[test]
    fn order_goes_to_the_machine_and_its_answer_back() {
        let mut scene = Scene::new();
        let machine = scene.machine("TCPIP");
        let observer = scene.connect(&Request::Observe);
        for (serial, placed, reply) in [
            (7, Placed::At(Some(1)), Some((7, Reply::DriverPlaced { processor: Some(1) }))),
            (8, Placed::At(None), Some((8, Reply::DriverPlaced { processor: None }))),
            (9, Placed::NoLan, failed(9, Problem::NoLan)),
            (10, Placed::Lacking, failed(10, Problem::MachineResources)),
            (11, Placed::NotRun, failed(11, Problem::ProcessorTaken)),
        ] {
            observer.send(&place("TCPIP", Some(1)).bytes(serial), &[]).unwrap();
            let Order { order, lan, processor } = scene.order_at(&machine);
            assert_eq!((lan.to_string(), processor), ("hs0".to_owned(), Some(1)));
            assert_eq!(scene.next(&observer), None, "nobody has answered yet");
            let done = Request::OrderDone { order, placed };
            machine.send(&done.bytes(3), &[]).unwrap();
            assert_eq!(scene.next(&observer), reply);
            // A second answer is to nothing.
            machine.send(&done.bytes(3), &[]).unwrap();
            assert_eq!((scene.next(&observer), scene.next(&machine)), (None, None));
        }
    }

    #[test]
    fn driver_stays_where_its_machine_may_take_an_address_over() {
        let machine = |name: &str, last: u8, more: &str| {
            format!(
                "[[tcpip]]\nname = \"{name}\"\n{more}\n[[tcpip.interface]]\nlan = \"hs0\"\naddresses = [\"10.1.0.{last}\"]\n"
            )
        };
        let dvipa =
            "dvipa = [{ address = \"10.1.0.100\", targets = [\"WEB1\"], backup = [\"BACK\"] }]";
        let text = [
            machine("DIST", 5, dvipa),
            machine("BACK", 6, ""),
            machine("WEB1", 7, ""),
            "[[lan]]\nname = \"hs0\"\nrange = \"10.1.0.0/24\"\n".to_owned(),
        ];
        let source = Source::of("s.toml", &text.concat());
        let mut scene = Scene::of(System::parse(&source).unwrap());
        let [back, web] = ["BACK", "WEB1"].map(|name| scene.machine(name));
        let observer = scene.connect(&Request::Observe);
        observer.send(&place("BACK", Some(1)).bytes(7), &[]).unwrap();
        assert_eq!(scene.next(&observer), failed(7, Problem::DriverInline));
        assert_eq!(scene.next(&back), None);
        // It may come back from elsewhere, and that of a target may be anywhere.
        observer.send(&place("BACK", None).bytes(8), &[]).unwrap();
        assert_eq!(scene.order_at(&back).processor, None);
        observer.send(&place("WEB1", Some(1)).bytes(9), &[]).unwrap();
        assert_eq!(scene.order_at(&web).processor, Some(1));
    }

    #[test]
    fn only_observers_give_orders_and_only_machines_get_them() {
        let mut scene = Scene::new();
        let guest = scene.connect(&Request::Attach { name: "ALICE".parse().unwrap() });
        let machine = scene.machine("TCPIP");
        let other = scene.machine("TCPIP2");
        for who in [&guest, &machine] {
            who.send(&place("TCPIP", None).bytes(5), &[]).unwrap();
            assert_eq!(scene.next(who), failed(5, Problem::Request));
        }
        let stranger = scene.handle.connect().unwrap();
        stranger.send(&place("TCPIP", None).bytes(5), &[]).unwrap();
        assert_eq!(scene.next(&stranger), failed(5, Problem::Request));
        let observer = scene.connect(&Request::Observe);
        observer.send(&place("ALICE", None).bytes(6), &[]).unwrap();
        assert_eq!(scene.next(&observer), failed(6, Problem::NoMachine));
        observer.send(&place("BOB", None).bytes(7), &[]).unwrap();
        assert_eq!(scene.next(&observer), failed(7, Problem::NotAttached));
        for request in [Request::TakeOrders, Request::OrderDone { order: 1, placed: Placed::NoLan }]
        {
            observer.send(&request.bytes(8), &[]).unwrap();
            assert_eq!(scene.next(&observer), failed(8, Problem::Request));
        }
        // Nobody answers for another machine.
        observer.send(&place("TCPIP", None).bytes(9), &[]).unwrap();
        let order = scene.order_at(&machine).order;
        other.send(&Request::OrderDone { order, placed: Placed::NoLan }.bytes(3), &[]).unwrap();
        assert_eq!(scene.next(&observer), None);
        machine
            .send(&Request::OrderDone { order, placed: Placed::At(None) }.bytes(3), &[])
            .unwrap();
        assert_eq!(scene.next(&observer), Some((9, Reply::DriverPlaced { processor: None })));
        assert_eq!(scene.next(&guest), None);
    }

    #[test]
    fn orders_that_nobody_answers_are_bounded_and_end_with_either_side() {
        let mut scene = Scene::new();
        let machine = scene.machine("TCPIP");
        let observer = scene.connect(&Request::Observe);
        let mut orders = Vec::new();
        for serial in 0..ORDERS_MAX as u32 {
            observer.send(&place("TCPIP", None).bytes(10 + serial), &[]).unwrap();
            orders.push(scene.order_at(&machine).order);
        }
        observer.send(&place("TCPIP", None).bytes(9), &[]).unwrap();
        assert_eq!(scene.next(&observer), failed(9, Problem::NotAnswering));
        // An observer that is gone waits for nothing, and what it has ordered is at the machine all the same.
        drop(observer);
        let observer = scene.connect(&Request::Observe);
        observer.send(&place("TCPIP", None).bytes(9), &[]).unwrap();
        assert_eq!(scene.next(&observer), failed(9, Problem::NotAnswering));
        assert_eq!(scene.next(&machine), None);
        for order in orders {
            let done = Request::OrderDone { order, placed: Placed::At(None) };
            machine.send(&done.bytes(3), &[]).unwrap();
            assert_eq!((scene.next(&machine), scene.next(&observer)), (None, None));
        }
        assert!(scene.host.operating.given.is_empty());
        observer.send(&place("TCPIP", Some(3)).bytes(11), &[]).unwrap();
        scene.order_at(&machine);
        drop(machine);
        assert_eq!(scene.next(&observer), failed(11, Problem::NotAttached));
        assert!(scene.host.operating.given.is_empty());
        // A guest of the same name is no machine before it says so.
        let _guest = scene.connect(&Request::Attach { name: "TCPIP".parse().unwrap() });
        observer.send(&place("TCPIP", None).bytes(12), &[]).unwrap();
        assert_eq!(scene.next(&observer), failed(12, Problem::NoMachine));
    }
}
