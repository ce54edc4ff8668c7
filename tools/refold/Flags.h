// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_TOOLS_REFOLD_FLAGS_H
#define REFOLD_TOOLS_REFOLD_FLAGS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace refold {

/// The flags of one command: what they are called, what they take, where it
/// goes. Written once, read by the parser and by --help.
class Flags {
public:
  /// A flag with a value, `--name=VALUE` or `--name VALUE`; `set` may refuse
  /// it.
  void value(llvm::StringRef name, llvm::StringRef placeholder,
             llvm::StringRef help,
             std::function<llvm::Error(llvm::StringRef)> set);
  void text(llvm::StringRef name, llvm::StringRef placeholder,
            llvm::StringRef help, std::string &result);
  void integer(llvm::StringRef name, llvm::StringRef placeholder,
               llvm::StringRef help, int64_t &result, int64_t low,
               int64_t high);
  /// One word of a list.
  void choice(llvm::StringRef name, llvm::StringRef help, std::string &result,
              std::vector<llvm::StringRef> choices);
  void toggle(llvm::StringRef name, llvm::StringRef help, bool &result);
  /// The one argument without dashes.
  void file(llvm::StringRef placeholder, llvm::StringRef help,
            std::string &result, bool isRequired = true);

  /// Parses; an error has ExitCode::Usage and names the nearest flag.
  llvm::Error parse(llvm::StringRef command,
                    llvm::ArrayRef<llvm::StringRef> arguments) const;
  /// The text of `refold COMMAND --help`.
  std::string help(llvm::StringRef command, llvm::StringRef summary) const;

private:
  struct Flag {
    std::string name, placeholder, help;
    std::function<llvm::Error(llvm::StringRef)> set;
  };
  const Flag *find(llvm::StringRef name) const;
  llvm::Error unknownFlag(llvm::StringRef command, llvm::StringRef name) const;

  std::vector<Flag> flags;
  std::optional<Flag> positional;
  bool isPositionalRequired = false;
};

/// "n=1000,d=64" into `result`; names once, extents from 0 to 2^40.
llvm::Error parseExtents(llvm::StringRef text,
                         std::map<std::string, int64_t> &result);
/// "1,2" into `result`.
llvm::Error parseCounts(llvm::StringRef text, std::vector<int64_t> &result,
                        int64_t low, int64_t high);

} // namespace refold

#endif // REFOLD_TOOLS_REFOLD_FLAGS_H
