#![no_main]

libfuzzer_sys::fuzz_target!(init: halocline_fuzz::seed("program_manifest"), |bytes: &[u8]| {
    halocline_fuzz::guarded(halocline_fuzz::program_manifest, bytes);
});
