//! An honest receiver facing a writer that does what the fuzzer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::reader_scribble(program));
