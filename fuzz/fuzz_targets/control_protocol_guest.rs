//! An honest guest facing a host that says what the fuzzer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::control_protocol_guest(program));
