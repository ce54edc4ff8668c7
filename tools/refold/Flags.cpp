// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Flags.h"
#include "refold/Support/Error.h"
#include "refold/Support/NearestName.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

namespace refold {

void Flags::value(llvm::StringRef name, llvm::StringRef placeholder,
                  llvm::StringRef help,
                  std::function<llvm::Error(llvm::StringRef)> set) {
  flags.push_back({name.str(), placeholder.str(), help.str(), std::move(set)});
}

void Flags::text(llvm::StringRef name, llvm::StringRef placeholder,
                 llvm::StringRef help, std::string &result) {
  value(name, placeholder, help, [&result](llvm::StringRef text) {
    result = text.str();
    return llvm::Error::success();
  });
}

void Flags::integer(llvm::StringRef name, llvm::StringRef placeholder,
                    llvm::StringRef help, int64_t &result, int64_t low,
                    int64_t high) {
  value(name, placeholder, help,
        [&result, low, high](llvm::StringRef text) -> llvm::Error {
          if (text.getAsInteger(10, result) || result < low || result > high)
            return fail(ExitCode::Usage,
                        "found '" + text + "', expected a number from " +
                            llvm::Twine(low) + " to " + llvm::Twine(high));
          return llvm::Error::success();
        });
}

void Flags::choice(llvm::StringRef name, llvm::StringRef help,
                   std::string &result, std::vector<llvm::StringRef> choices) {
  std::string placeholder = llvm::join(choices, "|");
  value(name, placeholder, help,
        [&result, choices](llvm::StringRef text) -> llvm::Error {
          if (!llvm::is_contained(choices, text))
            return fail(ExitCode::Usage, "found '" + text + "', expected " +
                                             llvm::join(choices, " or ") +
                                             suggestion(text, choices));
          result = text.str();
          return llvm::Error::success();
        });
}

void Flags::toggle(llvm::StringRef name, llvm::StringRef help, bool &result) {
  value(name, "", help, [&result](llvm::StringRef) {
    result = true;
    return llvm::Error::success();
  });
}

void Flags::file(llvm::StringRef placeholder, llvm::StringRef help,
                 std::string &result, bool isRequired) {
  positional =
      Flag{"", placeholder.str(), help.str(), [&result](llvm::StringRef text) {
             result = text.str();
             return llvm::Error::success();
           }};
  isPositionalRequired = isRequired;
}

const Flags::Flag *Flags::find(llvm::StringRef name) const {
  for (const Flag &flag : flags)
    if (flag.name == name)
      return &flag;
  return nullptr;
}

llvm::Error Flags::unknownFlag(llvm::StringRef command,
                               llvm::StringRef name) const {
  llvm::SmallVector<llvm::StringRef> known = {"help"};
  for (const Flag &flag : flags)
    known.push_back(flag.name);
  llvm::StringRef near = nearestName(name, known);
  std::string hint = near.empty()
                         ? "; see 'refold " + command.str() + " --help'"
                         : "; did you mean '--" + near.str() + "'?";
  return fail(ExitCode::Usage,
              "found the unknown flag '--" + name + "'" + hint);
}

llvm::Error Flags::parse(llvm::StringRef command,
                         llvm::ArrayRef<llvm::StringRef> arguments) const {
  bool hasPositional = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    llvm::StringRef argument = arguments[i];
    if (!argument.starts_with("-") || argument == "-") {
      if (!positional || hasPositional)
        return fail(
            ExitCode::Usage,
            "found '" + argument + "', expected " +
                (positional ? "one " + positional->placeholder : "flags only"));
      hasPositional = true;
      if (llvm::Error error = positional->set(argument))
        return error;
      continue;
    }
    auto [name, given] = argument.ltrim('-').split('=');
    const Flag *flag = find(argument == "-o" ? "output" : name);
    if (!flag || (!argument.starts_with("--") && argument != "-o"))
      return unknownFlag(command, name);
    bool hasValue = argument.contains('=');
    if (flag->placeholder.empty() && hasValue)
      return fail(ExitCode::Usage,
                  "found a value after '--" + name + "', expected none");
    if (!flag->placeholder.empty() && !hasValue) {
      if (++i == arguments.size())
        return fail(ExitCode::Usage, "found nothing after '" + argument +
                                         "', expected " + flag->placeholder);
      given = arguments[i];
    }
    if (llvm::Error error = flag->set(given)) {
      std::string message;
      ExitCode code = takeError(std::move(error), message);
      return fail(code, "--" + flag->name + ": " + message);
    }
  }
  if (isPositionalRequired && !hasPositional)
    return fail(ExitCode::Usage, "found no " + positional->placeholder +
                                     "; see 'refold " + command + " --help'");
  return llvm::Error::success();
}

std::string Flags::help(llvm::StringRef command,
                        llvm::StringRef summary) const {
  constexpr unsigned column = 34;
  std::string result;
  llvm::raw_string_ostream os(result);
  os << "refold " << command << ": " << summary << "\n\nusage: refold "
     << command;
  if (positional)
    os << (isPositionalRequired ? " " + positional->placeholder
                                : " [" + positional->placeholder + "]");
  os << " [flags]\n\n";
  auto line = [&](llvm::StringRef left, llvm::StringRef right) {
    os << "  " << left;
    if (left.size() + 2 >= column)
      os << "\n" << std::string(column, ' ');
    else
      os.indent(column - 2 - left.size());
    os << right << "\n";
  };
  if (positional)
    line(positional->placeholder, positional->help);
  for (const Flag &flag : flags)
    line("--" + flag.name +
             (flag.placeholder.empty() ? "" : "=" + flag.placeholder),
         flag.help);
  line("--help", "this text");
  return result;
}

llvm::Error parseExtents(llvm::StringRef text,
                         std::map<std::string, int64_t> &result) {
  llvm::SmallVector<llvm::StringRef> parts;
  text.split(parts, ',');
  for (llvm::StringRef part : parts) {
    auto [name, number] = part.split('=');
    int64_t extent = 0;
    bool isBad = name.empty() || number.getAsInteger(10, extent) ||
                 extent < 0 || extent > (int64_t(1) << 40);
    if (isBad)
      return fail(ExitCode::Usage,
                  "found '" + part + "', expected name=extent");
    if (!result.try_emplace(name.str(), extent).second)
      return fail(ExitCode::Usage, "found '" + name + "' twice");
  }
  return llvm::Error::success();
}

llvm::Error parseCounts(llvm::StringRef text, std::vector<int64_t> &result,
                        int64_t low, int64_t high) {
  llvm::SmallVector<llvm::StringRef> parts;
  text.split(parts, ',');
  result.clear();
  for (llvm::StringRef part : parts) {
    int64_t count = 0;
    if (part.getAsInteger(10, count) || count < low || count > high)
      return fail(ExitCode::Usage,
                  "found '" + part + "', expected numbers from " +
                      llvm::Twine(low) + " to " + llvm::Twine(high) +
                      " with commas between");
    result.push_back(count);
  }
  return llvm::Error::success();
}

} // namespace refold
