// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "DeferredCertificates.h"

#include <system_error>

using namespace refold;

DeferredCertificates::~DeferredCertificates() {
  if (thread.joinable())
    thread.join();
}

void DeferredCertificates::work() {
  StageTimer timer(times, "certify");
  CertificateStore keeping = store;
  keeping.keep = [this](llvm::StringRef key, llvm::StringRef value) {
    known[key.str()] = value.str();
    store.keep(key, value);
  };
  for (DeferredCertificate &entry : entries) {
    Stopwatch watch;
    // All are made: who begins anew needs them.
    if (!holds(entry, keeping))
      allHold = false;
    ms.push_back(watch.ms());
  }
  isDone = true;
}

void DeferredCertificates::start() {
  if (entries.empty())
    return;
  try {
    thread = std::thread([this] { work(); });
  } catch (const std::system_error &) {
    // The machine gives no more threads: `settle` does the work.
  }
}

bool DeferredCertificates::settle(FuseReport &report) {
  if (thread.joinable())
    thread.join();
  if (!isDone && !entries.empty())
    work();
  if (!allHold)
    return false;
  for (size_t i = 0; i < entries.size(); ++i)
    for (size_t kernel : entries[i].kernels) {
      report.cascades[kernel].certificate = entries[i].summary;
      report.cascades[kernel].certifyMs = ms[i];
    }
  return true;
}
