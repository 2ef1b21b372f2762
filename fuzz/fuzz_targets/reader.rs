#![no_main]

use werkruf_reader::{Kind, properties};

// The first byte chooses the kind of the file.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((first, content)) = bytes.split_first() {
        properties::bounded(Kind::ALL[usize::from(*first) % Kind::ALL.len()], content);
    }
});
