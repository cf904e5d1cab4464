//! A port between a device and members of its LAN, all of which send what the fuzzer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::port_frames(program));
