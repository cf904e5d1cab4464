//! The first half of an import: statements, taken apart by the tables. Names are not looked up yet: a HOME may stand before its LINK.

use std::net::IpAddr;
use std::ops::Range;

use ipnet::IpNet;
use strsim::damerau_levenshtein;

use super::finding::{Findings, Mistake};
use super::operand::{
    Named, address, address_with_bits, bytes, device_address, is_like_address, mask_bits, mtu,
    name, number,
};
use super::statement::{
    Becomes, DEVICE_TYPES, DeviceType, Fate, INTERFACE_TYPES, LINK_TYPES, LinkType, Medium,
    OPTIONS, Operand, ROUTE_OPTIONS, STATEMENTS, Setting, Statement, find,
};
use super::target::destination;
use super::word::{Word, Words, words};
use crate::config::Source;

/// Devices, links, home addresses, and rows of BSDROUTINGPARMS: of each at most so many.
pub const ENTRIES_MAX: usize = 512;

/// Routes, at most.
pub const ROUTES_MAX: usize = 1024;

/// The greatest number of a processor, as a mainframe has them.
const CPU_MAX: u32 = 63;

/// Buffers of a pool, at most, and bytes of a data buffer.
const BUFFERS_MAX: u32 = 1 << 20;
const BUFFER_BYTES_MAX: u32 = 262_144;

/// The size of a data buffer that is not written, in bytes.
pub(super) const BUFFER_BYTES: u32 = 8192;

/// Bytes of a connection's buffer that TCPCONFIG asks for, at most.
const CONNECTION_BYTES_MAX: u32 = 2 << 20;

/// Pages of the pool of fixed pages, at most: 64 GiB.
const PAGES_MAX: u32 = 1 << 24;

#[derive(Debug)]
pub(super) struct Device {
    pub(super) named: Named,
    pub(super) kind: &'static DeviceType,
    pub(super) cpu: Option<u32>,
    /// The guest at the other end.
    pub(super) user: Option<Named>,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) named: Named,
    pub(super) medium: Medium,
    /// Its device. None of an INTERFACE, which has none.
    pub(super) device: Option<Named>,
    /// None of an INTERFACE.
    pub(super) kind: Option<&'static LinkType>,
    pub(super) cpu: Option<u32>,
    pub(super) mtu: Option<u32>,
}

#[derive(Debug)]
pub(super) struct Home {
    pub(super) address: IpAddr,
    pub(super) bits: Option<u8>,
    pub(super) link: Named,
    pub(super) span: Range<usize>,
}

#[derive(Debug)]
pub(super) struct Route {
    pub(super) to: IpNet,
    /// None if the network is at the link itself.
    pub(super) hop: Option<IpAddr>,
    pub(super) link: Named,
    pub(super) mtu: Option<u32>,
    pub(super) span: Range<usize>,
}

/// A row of BSDROUTINGPARMS.
#[derive(Debug)]
pub(super) struct Parms {
    pub(super) link: Named,
    pub(super) mtu: Option<u32>,
    pub(super) bits: Option<u8>,
    pub(super) destination: Option<IpAddr>,
}

/// Numbers of one statement that becomes a size.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    pub(super) first: u32,
    pub(super) second: Option<u32>,
    pub(super) span: Range<usize>,
}

/// All that a profile says, of what can become something.
#[derive(Debug, Default)]
pub(super) struct Profile {
    pub(super) devices: Vec<Device>,
    pub(super) links: Vec<Link>,
    pub(super) homes: Vec<Home>,
    pub(super) routes: Vec<Route>,
    pub(super) parms: Vec<Parms>,
    pub(super) starts: Vec<Named>,
    /// Buffers, and bytes of each.
    pub(super) data_buffers: Option<Numbers>,
    /// Buffers to receive, and to send.
    pub(super) data_buffer_limits: Option<Numbers>,
    /// Pages.
    pub(super) fixed_pages: Option<Numbers>,
    /// Bytes of a connection's buffers.
    pub(super) connection_bytes: Option<Numbers>,
    /// It says whether packets are passed on between interfaces.
    pub(super) says_forwarding: bool,
}

/// Reads all statements. What is wrong, and what nothing becomes of, is added to the findings.
pub(super) fn read(source: &Source, findings: &mut Findings<'_>) -> Profile {
    let Words { words, unended, comments } = words(source.text());
    for span in unended {
        let right = "a text in quotes must end in its line";
        findings.mistake(Mistake::at(&span, "this quote has no second one", right));
    }
    for span in comments {
        let right = "a comment must begin with ;";
        findings.mistake(Mistake::at(&span, "this begins no statement", right));
    }
    let mut reader = Reader { findings, profile: Profile::default() };
    let mut at = 0;
    while let Some(word) = words.get(at) {
        if reader.findings.is_full() {
            reader.findings.end_at(&word.span);
            break;
        }
        at = reader.statement(&words, at);
    }
    reader.profile
}

/// The operands of a statement, from first to last.
pub(super) struct Operands<'w, 'a> {
    statement: &'static str,
    words: &'w [Word<'a>],
    at: usize,
    /// What is pointed at where a word is missing.
    last: Range<usize>,
}

impl<'w, 'a> Operands<'w, 'a> {
    pub(super) fn peek(&self) -> Option<&'w Word<'a>> {
        self.words.get(self.at)
    }

    fn next(&mut self) -> Option<&'w Word<'a>> {
        let word = self.words.get(self.at)?;
        self.at += 1;
        self.last = word.span.clone();
        Some(word)
    }

    /// Returns the next word, which must be there. `what` is what it stands for, `form` how the statement is written.
    pub(super) fn need(&mut self, what: &str, form: &str) -> Result<&'w Word<'a>, Mistake> {
        let missing = || {
            let what = format!("{} has no {what}", self.statement.to_uppercase());
            Mistake::at(&self.last, what, format!("must be {form}"))
        };
        self.words.get(self.at).ok_or_else(missing)?;
        Ok(self.next().expect("it is there"))
    }

    pub(super) fn need_name(&mut self, what: &str, form: &str) -> Result<Named, Mistake> {
        name(self.need(what, form)?)
    }

    /// Goes to the first word of the next line, and past `entry` at least.
    fn skip_line(&mut self, entry: usize) {
        while self.peek().is_some_and(|word| !word.is_first || self.at == entry) {
            self.at += 1;
        }
    }
}

struct Reader<'r, 's> {
    findings: &'r mut Findings<'s>,
    profile: Profile,
}

impl Reader<'_, '_> {
    /// Reads the statement that begins with word `at`, and returns where the next one begins.
    fn statement(&mut self, words: &[Word<'_>], at: usize) -> usize {
        let head = &words[at];
        let after = at + 1;
        let Some(row) = find(STATEMENTS, head, |row| row.name) else {
            let names = STATEMENTS.iter().map(|row| row.name);
            self.findings.mistake(Mistake::unknown(head, "statement", names));
            // What follows is part of it.
            let next = words[after..].iter().position(begins_statement);
            return next.map_or(words.len(), |next| after + next);
        };
        let (end, next) = match row.end {
            None => {
                let has_line = matches!(row.fate, Fate::LineLeftOut(_));
                let mut end = after;
                while let Some(word) = words.get(end) {
                    if (word.is_first || !has_line) && begins_statement(word) {
                        break;
                    }
                    end += 1;
                }
                (end, end)
            }
            Some(keyword) => self.block(words, at, row, keyword),
        };
        let operands = Operands {
            statement: row.name,
            words: &words[after..end],
            at: 0,
            last: head.span.clone(),
        };
        self.run(head, row, operands);
        next
    }

    /// Finds the end of a block: where its operands end, and where the next statement begins. A block without an end ends where a statement
    /// begins a line.
    fn block(
        &mut self,
        words: &[Word<'_>],
        at: usize,
        row: &Statement,
        keyword: &str,
    ) -> (usize, usize) {
        let after = at + 1;
        let mut statement = None;
        for (end, word) in words.iter().enumerate().skip(after) {
            if word.is(keyword) {
                return (end, end + 1);
            }
            if word.is_first && find(STATEMENTS, word, |row| row.name).is_some() {
                statement.get_or_insert(end);
                // A second one of the same kind has an end of its own.
                if word.is(row.name) {
                    break;
                }
            }
        }
        let end = statement.unwrap_or(words.len());
        let (name, keyword) = (row.name.to_uppercase(), keyword.to_uppercase());
        let right = format!("must end with {keyword}");
        let what = format!("{name} has no end");
        self.findings.mistake(Mistake::at(&words[at].span, what, right));
        (end, end)
    }

    fn run(&mut self, head: &Word<'_>, row: &'static Statement, mut operands: Operands<'_, '_>) {
        let result = match row.fate {
            Fate::Device => self.device(&mut operands),
            Fate::Link => self.link(&mut operands),
            Fate::Interface => self.interface(&mut operands),
            Fate::Home => self.entries(&mut operands, Reader::home),
            Fate::Gateway => self.entries(&mut operands, Reader::gateway),
            Fate::Routes => self.entries(&mut operands, Reader::route),
            Fate::RoutingParms => self.routing_parms(&mut operands),
            Fate::Start => self.start(&mut operands),
            Fate::DataBuffers => self.data_buffers(head, &mut operands),
            Fate::DataBufferLimits => self.data_buffer_limits(head, &mut operands),
            Fate::FixedPages => self.fixed_pages(head, &mut operands),
            Fate::Settings(table) => self.settings(table, &mut operands),
            Fate::LeftOut(reason) | Fate::LineLeftOut(reason) => {
                self.findings.left_out(&head.span, &row.name.to_uppercase(), reason);
                Ok(())
            }
            Fate::Nothing => Ok(()),
        };
        if let Err(mistake) = result {
            self.findings.mistake(mistake);
        }
    }

    fn device(&mut self, operands: &mut Operands<'_, '_>) -> Result<(), Mistake> {
        let form = "DEVICE name type ..., like DEVICE HS0 HIPERS 7000";
        let named = operands.need_name("name", form)?;
        let word = operands.need("type", form)?;
        let Some(kind) = find(DEVICE_TYPES, word, |kind| kind.name) else {
            let names = DEVICE_TYPES.iter().map(|kind| kind.name);
            return Err(Mistake::unknown(word, "type of device", names));
        };
        is_new(&named, self.profile.devices.iter().map(|device| &device.named), "DEVICE")?;
        let mut device = Device { named, kind, cpu: None, user: None };
        for operand in kind.operands {
            match operand {
                Operand::Address => {
                    let form = format!("DEVICE name {} address, like 7000", kind.name);
                    device_address(operands.need("address", &form)?)?;
                }
                Operand::User => {
                    let form = format!("DEVICE name {} 0 0 guest A", kind.name);
                    device.user = Some(operands.need_name("guest at its other end", &form)?);
                }
                Operand::Word(what) => {
                    let form = format!("DEVICE name {} 0 ...: {what} stands there", kind.name);
                    operands.need("operand", &form)?;
                }
            }
        }
        if kind.has_options {
            let found = self.options(OPTIONS, "DEVICE", operands);
            device.cpu = found.cpu;
        }
        self.push(|profile| &mut profile.devices, device)
    }

    fn link(&mut self, operands: &mut Operands<'_, '_>) -> Result<(), Mistake> {
        let form = "LINK name type device, like LINK HSL0 QDIOIP HS0";
        let named = operands.need_name("name", form)?;
        let word = operands.need("type", form)?;
        let Some(kind) = find(LINK_TYPES, word, |kind| kind.name) else {
            let names = LINK_TYPES.iter().map(|kind| kind.name);
            return Err(Mistake::unknown(word, "type of link", names));
        };
        if kind.has_number {
            let form = format!("LINK name {} number device, like 0 CTCA1", kind.name);
            let word = operands.need("number", &form)?;
            if !word.text.bytes().all(|byte| byte.is_ascii_digit()) {
                let what = format!("{} is no number of a link", word.shown());
                return Err(Mistake::at(&word.span, what, format!("must be {form}")));
            }
        }
        let device = Some(operands.need_name("device", form)?);
        is_new(&named, self.profile.links.iter().map(|link| &link.named), "LINK or INTERFACE")?;
        let found = self.options(OPTIONS, "LINK", operands);
        let (medium, kind) = (kind.medium, Some(kind));
        let link = Link { named, medium, device, kind, cpu: found.cpu, mtu: found.mtu };
        self.push(|profile| &mut profile.links, link)
    }

    fn interface(&mut self, operands: &mut Operands<'_, '_>) -> Result<(), Mistake> {
        let form = "INTERFACE name DEFINE type ..., like INTERFACE OSA1 DEFINE IPAQENET IPADDR 10.1.0.1/24";
        let named = operands.need_name("name", form)?;
        let verb = operands.need("verb", form)?;
        if !verb.is("DEFINE") {
            let name = format!("INTERFACE {} {}", named.name, verb.shown());
            if ["DELETE", "ADDADDR", "DELADDR", "ADDTEMPPREFIX", "DELTEMPPREFIX"]
                .iter()
                .any(|known| verb.is(known))
            {
                let reason = "only what DEFINE says becomes an interface";
                self.findings.left_out(&verb.span, &name, reason);
                return Ok(());
            }
            return Err(Mistake::unknown(verb, "verb of INTERFACE", ["DEFINE"]));
        }
        let word = operands.need("type", form)?;
        let Some((_, medium)) = find(INTERFACE_TYPES, word, |(name, _)| name) else {
            let names = INTERFACE_TYPES.iter().map(|(name, _)| *name);
            return Err(Mistake::unknown(word, "type of interface", names));
        };
        is_new(&named, self.profile.links.iter().map(|link| &link.named), "LINK or INTERFACE")?;
        let found = self.options(OPTIONS, "INTERFACE", operands);
        for (address, bits, span) in found.addresses {
            let home = Home { address, bits, link: named.clone(), span };
            self.push(|profile| &mut profile.homes, home)?;
        }
        let (device, kind, medium) = (None, None, *medium);
        let link = Link { named, medium, device, kind, cpu: found.cpu, mtu: found.mtu };
        self.push(|profile| &mut profile.links, link)
    }

    /// Reads entries up to the end. One that is wrong is reported, and the next line is the next entry.
    fn entries(
        &mut self,
        operands: &mut Operands<'_, '_>,
        entry: fn(&mut Self, &mut Operands<'_, '_>) -> Result<(), Mistake>,
    ) -> Result<(), Mistake> {
        while operands.peek().is_some() && !self.findings.is_full() {
            let start = operands.at;
            if let Err(mistake) = entry(self, operands) {
                self.findings.mistake(mistake);
                operands.skip_line(start);
            }
        }
        Ok(())
    }

    /// An entry of HOME.
    fn home(&mut self, operands: &mut Operands<'_, '_>) -> Result<(), Mistake> {
        let form = "HOME address link, like 10.1.0.1/24 HSL0 or 10.1.0.1 255.255.255.0 HSL0";
        let word = operands.need("address", form)?;
        let (address, mut bits) = address_with_bits(word)?;
        if let Some(mask) = operands.peek().filter(|word| is_like_address(word)) {
            operands.next();
            if bits.is_some() {
                let what = format!("{} is a second mask", mask.shown());
                return Err(Mistake::at(&mask.span, what, format!("must be {form}")));
            }
            bits = Some(mask_bits(mask)?);
        }
        let link = operands.need_name("link", form)?;
        if link.name == "LOOPBACK" {
            let reason = "the stack has a loopback interface";
            self.findings.left_out(&link.span, "the address of LOOPBACK", reason);
            return Ok(());
        }
        let home = Home { address, bits, link, span: word.span.clone() };
        self.push(|profile| &mut profile.homes, home)
    }

    /// An entry of GATEWAY, in one of two forms:
    ///
    /// ```text
    /// network          hop link MTU mask value      the mask and the value without the bits of the network's class; 0 or HOST alone
    /// network/bits     hop link MTU
    /// network mask     hop link MTU
    /// ```
    fn gateway(&mut self, operands: &mut Operands<'_, '_>) -> Result<(), Mistake> {
        let form =
            "GATEWAY network mask hop link MTU, like 10.2.0.0 255.255.0.0 10.1.0.1 HSL0 8192";
        let (target, hop, link) = destination(operands, form)?;
        let mtu = mtu(operands.need("MTU", form)?)?;
        // The next entry begins with an address too: a mask of the old form stands in the line, or begins with a zero.
        let is_mask = |word: &Word<'_>| {
            let is_short = word.text == "0" || word.is("HOST") || word.text.starts_with("0.");
            let may_be_long = !word.is_first && !target.is_default();
            !target.has_mask() && (is_short || (may_be_long && is_like_address(word)))
        };
        let mask = operands.peek().filter(|word| is_mask(word));
        if mask.is_some() {
            operands.next();
        }
        let is_value = |word: &&Word<'_>| is_mask(word) && mask.is_some_and(is_like_address);
        let value = operands.peek().filter(|word| is_value(word) && word.text != "0");
        if value.is_some() {
            operands.next();
        }
        let to = target.network(hop, mask, value)?;
        self.push_route(Route { to, hop, link, mtu, span: target.span })
    }

    /// A ROUTE of BEGINROUTES.
    fn route(&mut self, operands: &mut Operands<'_, '_>) -> Result<(), Mistake> {
        let form =
            "ROUTE network mask hop link MTU n, like ROUTE 10.2.0.0/16 10.1.0.1 HSL0 MTU 8192";
        let word = operands.need("ROUTE", form)?;
        if !word.is("ROUTE") {
            return Err(Mistake::unknown(word, "entry of BEGINROUTES", ["ROUTE"]));
        }
        let (target, hop, link) = destination(operands, form)?;
        let to = target.network(hop, None, None)?;
        let mut mtu = None;
        while let Some(word) = operands.peek().filter(|word| !word.is("ROUTE")) {
            operands.next();
            let Some(option) = find(ROUTE_OPTIONS, word, |row| row.name) else {
                let names = ROUTE_OPTIONS.iter().map(|row| row.name);
                return Err(Mistake::unknown(word, "option of ROUTE", names));
            };
            for _ in 0..option.operands {
                let operand = operands.need(option.name, form)?;
                if option.becomes == Becomes::Mtu {
                    mtu = self::mtu(operand)?;
                }
            }
            if let Becomes::LeftOut(reason) = option.becomes {
                let subject = format!("ROUTE {}", option.name.to_uppercase());
                self.findings.left_out(&word.span, &subject, reason);
            }
        }
        self.push_route(Route { to, hop, link, mtu, span: target.span })
    }

    fn routing_parms(&mut self, operands: &mut Operands<'_, '_>) -> Result<(), Mistake> {
        if operands.peek().is_some_and(|word| word.is("TRUE") || word.is("FALSE")) {
            operands.next();
        }
        self.entries(operands, Reader::parms)
    }

    /// A row of BSDROUTINGPARMS.
    fn parms(&mut self, operands: &mut Operands<'_, '_>) -> Result<(), Mistake> {
        let form =
            "BSDROUTINGPARMS link MTU metric mask destination, like HSL0 8192 0 255.255.255.0 0";
        let link = operands.need_name("link", form)?;
        let mtu = mtu(operands.need("MTU", form)?)?;
        let metric = operands.need("metric", form)?;
        number(metric, 0, 64)?;
        let mask = operands.need("mask", form)?;
        let bits = if mask.text == "0" { None } else { Some(mask_bits(mask)?) };
        let word = operands.need("destination", form)?;
        let destination = if word.text == "0" { None } else { Some(address(word)?) };
        self.push(|profile| &mut profile.parms, Parms { link, mtu, bits, destination })
    }

    fn start(&mut self, operands: &mut Operands<'_, '_>) -> Result<(), Mistake> {
        let form = "START device, like START HS0";
        let named = operands.need_name("device", form)?;
        self.push(|profile| &mut profile.starts, named)?;
        match operands.next() {
            Some(word) => {
                let names = STATEMENTS.iter().map(|row| row.name);
                Err(Mistake::unknown(word, "statement", names))
            }
            None => Ok(()),
        }
    }

    fn data_buffers(
        &mut self,
        head: &Word<'_>,
        operands: &mut Operands<'_, '_>,
    ) -> Result<(), Mistake> {
        let form = "DATABUFFERPOOLSIZE number size, like 160 32760";
        let first = number(operands.need("number", form)?, 1, BUFFERS_MAX)?;
        let size = operands.next().map(|word| number(word, 256, BUFFER_BYTES_MAX));
        let numbers = Numbers { first, second: size.transpose()?, span: head.span.clone() };
        self.profile.data_buffers = Some(numbers);
        nothing_more(operands, form)
    }

    fn data_buffer_limits(
        &mut self,
        head: &Word<'_>,
        operands: &mut Operands<'_, '_>,
    ) -> Result<(), Mistake> {
        let form = "DATABUFFERLIMITS receive send, like 10 10";
        let first = number(operands.need("number", form)?, 1, BUFFERS_MAX)?;
        let send = operands.next().map(|word| number(word, 1, BUFFERS_MAX)).transpose()?;
        let numbers = Numbers { first, second: send, span: head.span.clone() };
        self.profile.data_buffer_limits = Some(numbers);
        nothing_more(operands, form)
    }

    fn fixed_pages(
        &mut self,
        head: &Word<'_>,
        operands: &mut Operands<'_, '_>,
    ) -> Result<(), Mistake> {
        let form = "FIXEDPAGESTORAGEPOOL most first, in pages, like 512 128";
        let Some(word) = operands.next() else {
            self.findings.left_out(&head.span, "FIXEDPAGESTORAGEPOOL", NO_FIXED_PAGES);
            return Ok(());
        };
        let first = number(word, 1, PAGES_MAX)?;
        let initial = operands.next().map(|word| number(word, 0, PAGES_MAX)).transpose()?;
        let numbers = Numbers { first, second: initial, span: head.span.clone() };
        self.profile.fixed_pages = Some(numbers);
        nothing_more(operands, form)
    }

    fn settings(
        &mut self,
        table: &'static [Setting],
        operands: &mut Operands<'_, '_>,
    ) -> Result<(), Mistake> {
        let statement = operands.statement.to_uppercase();
        let found = self.options(table, &statement, operands);
        if let Some(numbers) = found.connection_bytes {
            let before = self.profile.connection_bytes.as_ref().map_or(0, |before| before.first);
            let first = numbers.first.max(before);
            self.profile.connection_bytes = Some(Numbers { first, ..numbers });
        }
        Ok(())
    }

    /// Reads options up to the end. A wrong one is reported, and those after it are read from the next line on.
    fn options(
        &mut self,
        table: &'static [Setting],
        statement: &str,
        operands: &mut Operands<'_, '_>,
    ) -> Options {
        let mut found = Options::default();
        while operands.peek().is_some() && !self.findings.is_full() {
            let start = operands.at;
            if let Err(mistake) = self.option(table, statement, operands, &mut found) {
                self.findings.mistake(mistake);
                operands.skip_line(start);
            }
        }
        found
    }

    fn option(
        &mut self,
        table: &'static [Setting],
        statement: &str,
        operands: &mut Operands<'_, '_>,
        found: &mut Options,
    ) -> Result<(), Mistake> {
        let word = operands.need("option", "one of its options")?;
        let Some(option) = find(table, word, |row| row.name) else {
            return Err(unknown_option(word, statement, table));
        };
        let name = option.name.to_uppercase();
        let form = format!("{name} and a word after it");
        let mut subject = format!("{statement} {name}");
        for _ in 0..option.operands {
            let operand = operands.need(&format!("word after {name}"), &form)?;
            match option.becomes {
                Becomes::Cpu => found.cpu = Some(number(operand, 0, CPU_MAX)?),
                Becomes::Mtu => found.mtu = mtu(operand)?,
                Becomes::Address if statement != "INTERFACE" => {
                    return Err(unknown_option(word, statement, table));
                }
                Becomes::Address => {
                    let (address, bits) = address_with_bits(operand)?;
                    found.addresses.push((address, bits, operand.span.clone()));
                }
                Becomes::ConnectionBuffers => {
                    let bytes = bytes(operand, CONNECTION_BYTES_MAX)?;
                    let before = found.connection_bytes.as_ref().map_or(0, |other| other.first);
                    let (first, span) = (bytes.max(before), word.span.clone());
                    found.connection_bytes = Some(Numbers { first, second: None, span });
                }
                _ => subject = format!("{subject} {}", operand.shown()),
            }
        }
        match option.becomes {
            Becomes::LeftOut(reason) => self.findings.left_out(&word.span, &subject, reason),
            Becomes::Forwarding => self.findings.left_out(&word.span, &subject, NO_FORWARDING),
            _ => {}
        }
        self.profile.says_forwarding |=
            matches!(option.becomes, Becomes::Forwarding | Becomes::NoForwarding);
        Ok(())
    }

    fn push<T>(&mut self, list: fn(&mut Profile) -> &mut Vec<T>, entry: T) -> Result<(), Mistake>
    where
        T: Placed,
    {
        let list = list(&mut self.profile);
        if list.len() == ENTRIES_MAX {
            let right = format!("must be at most {ENTRIES_MAX}");
            return Err(Mistake::at(
                entry.span(),
                "there are too many entries of this kind",
                right,
            ));
        }
        list.push(entry);
        Ok(())
    }

    fn push_route(&mut self, route: Route) -> Result<(), Mistake> {
        if self.profile.routes.len() == ROUTES_MAX {
            let right = format!("must be at most {ROUTES_MAX}");
            return Err(Mistake::at(&route.span, "there are too many routes", right));
        }
        self.profile.routes.push(route);
        Ok(())
    }
}

/// The reason for which forwarding is left out.
pub(super) const NO_FORWARDING: &str =
    "the machine passes nothing on between its interfaces: siga route does";

/// The reason for which a pool of fixed pages is left out.
pub(super) const NO_FIXED_PAGES: &str = "pages of a path are not locked, and come as they are needed; buffers_max of [[tcpip]] bounds what clients keep";

/// What options said.
#[derive(Default)]
struct Options {
    cpu: Option<u32>,
    mtu: Option<u32>,
    addresses: Vec<(IpAddr, Option<u8>, Range<usize>)>,
    connection_bytes: Option<Numbers>,
}

/// An entry that knows its place in the profile.
trait Placed {
    fn span(&self) -> &Range<usize>;
}

impl Placed for Named {
    fn span(&self) -> &Range<usize> {
        &self.span
    }
}

impl Placed for Device {
    fn span(&self) -> &Range<usize> {
        &self.named.span
    }
}

impl Placed for Link {
    fn span(&self) -> &Range<usize> {
        &self.named.span
    }
}

impl Placed for Home {
    fn span(&self) -> &Range<usize> {
        &self.span
    }
}

impl Placed for Parms {
    fn span(&self) -> &Range<usize> {
        &self.link.span
    }
}

/// Returns true if a statement begins with this word: a keyword, or at the beginning of a line one with an error in it. Otherwise the
/// statement before would take that for an operand, and where it takes any, nothing would be said of it.
fn begins_statement(word: &Word<'_>) -> bool {
    let is_nearly = |row: &Statement| {
        let becomes_something =
            !matches!(row.fate, Fate::LeftOut(_) | Fate::LineLeftOut(_) | Fate::Nothing);
        // One letter is wrong, or two have changed places. DEFINE is no DEVICE.
        becomes_something
            && word.text.len().abs_diff(row.name.len()) <= 1
            && damerau_levenshtein(&word.text.to_uppercase(), &row.name.to_uppercase()) == 1
    };
    let may_be = || {
        word.is_first && !word.is_quoted && word.text.bytes().all(|byte| byte.is_ascii_alphabetic())
    };
    find(STATEMENTS, word, |row| row.name).is_some()
        || (may_be() && STATEMENTS.iter().any(is_nearly))
}

fn unknown_option(word: &Word<'_>, statement: &str, table: &'static [Setting]) -> Mistake {
    let may_be = |row: &&Setting| row.becomes != Becomes::Address || statement == "INTERFACE";
    let options = table.iter().filter(may_be).map(|row| row.name);
    // A word that begins a line is rather a statement with an error.
    if word.is_first {
        let names = STATEMENTS.iter().map(|row| row.name);
        let kind = format!("statement, nor option of {statement}");
        return Mistake::unknown(word, &kind, names.chain(options));
    }
    Mistake::unknown(word, &format!("option of {statement}"), options)
}

fn is_new<'n>(
    named: &Named,
    mut others: impl Iterator<Item = &'n Named>,
    kind: &str,
) -> Result<(), Mistake> {
    if others.any(|other| other.name == named.name) {
        let what = format!("{} is the name of a {kind} above", named.name);
        return Err(Mistake::at(&named.span, what, "must have a name of its own"));
    }
    Ok(())
}

fn nothing_more(operands: &mut Operands<'_, '_>, form: &str) -> Result<(), Mistake> {
    match operands.next() {
        None => Ok(()),
        Some(word) if word.is_first => {
            Err(Mistake::unknown(word, "statement", STATEMENTS.iter().map(|row| row.name)))
        }
        Some(word) => {
            let what = format!("{} is one operand too many", word.shown());
            Err(Mistake::at(&word.span, what, format!("must be {form}")))
        }
    }
}
